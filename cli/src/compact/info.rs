//! `tallystone compact info KEY`

use super::session::CompactSession;
use super::set::{Figure, Figures, Set};
use crate::error::CliError;
use crate::output::grouped;
use crate::text::visible;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
}

pub(super) async fn run(args: InfoArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let set = Set::read(&args.key, session).await?;
    session.output.one(&set.info, |info| text(&set.key, info))
}

fn text(key: &str, info: &Figures) -> String {
    let longest = info.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("counter set {}\n", visible(key));
    for (name, figure) in &info.0 {
        let shown = match figure {
            Figure::Number(number) => u64::try_from(*number).map_or_else(|_| number.to_string(), grouped),
            Figure::Text(text) => visible(text),
        };
        text += &format!("  {:longest$}  {shown}\n", name.to_ascii_lowercase());
    }
    let ids = info.number("ids");
    if ids > 0 {
        let bytes = info.number("memory_bytes") as f64 / ids as f64;
        text += &format!("  {:longest$}  {bytes:.1}\n", "bytes_per_id");
    }
    text
}
