//! `tallystone compact alter KEY`: one command for each change, in the order of the flags below.

use super::create::parse_field;
use super::options::Options;
use super::session::CompactSession;
use super::set::Set;
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use redis::cmd;

#[derive(Args, Debug)]
pub(crate) struct AlterArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// Add a field, such as shares=16; it is 0 for each id
    #[arg(long, value_name = "FIELD=BITS", value_parser = parse_field)]
    add: Vec<(String, String)>,
    /// Give a field more bits, such as likes=32
    #[arg(long, value_name = "FIELD=BITS", value_parser = parse_field)]
    widen: Vec<(String, String)>,
    /// Remove a field with its values
    #[arg(long, value_name = "FIELD")]
    retire: Vec<String>,
    #[command(flatten)]
    options: Options,
}

pub(super) async fn run(args: AlterArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let AlterArgs { key, add, widen, retire, options } = args;
    let mut changes: Vec<Vec<String>> = Vec::new();
    for (what, fields) in [("ADD", add), ("WIDEN", widen)] {
        changes.extend(fields.into_iter().map(|(field, width)| vec![what.to_owned(), field, width]));
    }
    changes.extend(retire.into_iter().map(|field| vec!["RETIRE".to_owned(), field]));
    let options = options.list().into_iter();
    changes.extend(options.map(|(name, value)| vec!["OPTION".to_owned(), name.to_owned(), value]));
    if changes.is_empty() {
        return Err(CliError::usage("nothing to change: give --add, --widen, --retire or an option"));
    }
    for change in changes {
        session.call::<()>(&key, cmd("CT.ALTER").arg(&key).arg(&change)).await?;
    }
    let set = Set::read(&key, session).await?;
    session.output.one(&set.info, |info| {
        let behind = if info.number("converting") > 0 { " Tables are converted in the background." } else { "" };
        format!("Changed {}: {}.{behind}", visible(&key), visible(info.text("schema")))
    })
}
