//! `tallystone msg explain QUEUE ID`

use crate::connection::Session;
use crate::duration::format_time;
use crate::error::CliError;
use crate::terminal::colored;
use crate::text::visible;
use clap::Args;
use tallystone_client::{Explanation, Hindrance};

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The queue
    queue: String,
    /// The message's id
    id: String,
}

pub(crate) async fn run(args: ExplainArgs, session: &Session) -> Result<(), CliError> {
    let explanation = session.call(&args.queue, session.client.explain(&args.queue, &args.id)).await?;
    session.output.one(&explanation, text)
}

fn text(explanation: &Explanation) -> String {
    let first = format!("{} is {}.\n", visible(&explanation.message.id), colored(explanation.message.state.name()));
    let sentence = |hindrance: &Hindrance| match hindrance.until_ms {
        0 => format!("  {}\n", visible(&hindrance.text)),
        until_ms => format!("  {} This lasts until {}.\n", visible(&hindrance.text), format_time(until_ms)),
    };
    explanation.hindrances.iter().map(sentence).fold(first, |text, line| text + &line)
}
