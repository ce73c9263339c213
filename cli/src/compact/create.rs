//! `tallystone compact create KEY FIELD=BITS…`

use super::options::{FixedOptions, Options};
use super::session::CompactSession;
use super::set::Set;
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use redis::cmd;

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The key of the new counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// The fields of each id with their widths in bits, such as likes=24 (unsigned) or balance=i40 (may be negative)
    #[arg(required = true, value_name = "FIELD=BITS", value_parser = parse_field)]
    fields: Vec<(String, String)>,
    #[command(flatten)]
    fixed: FixedOptions,
    #[command(flatten)]
    options: Options,
}

pub(super) async fn run(args: CreateArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let CreateArgs { key, fields, fixed, options } = args;
    let mut command = cmd("CT.CREATE");
    command.arg(&key);
    for (name, value) in fixed.list().into_iter().chain(options.list()) {
        command.arg(name).arg(value);
    }
    command.arg("SCHEMA");
    for (field, width) in &fields {
        command.arg(field).arg(width);
    }
    session.call::<()>(&key, &command).await?;
    let set = Set::read(&key, session).await?;
    session.output.one(&set.info, |info| {
        let bits = info.number("record_bits");
        format!("Created {}: {}, {bits} bits for each id.", visible(&key), visible(info.text("schema")))
    })
}

/// For clap: a field and its width.
pub(super) fn parse_field(text: &str) -> Result<(String, String), String> {
    let (field, width) = text.split_once('=').ok_or("expected FIELD=BITS, such as likes=24 or balance=i40")?;
    Ok((field.to_owned(), width.to_owned()))
}
