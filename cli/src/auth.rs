//! `tallystone auth check`: what a principal may do, and by which rule.

use crate::error::CliError;
use crate::nearest::nearest;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use tallystone_serving::{Book, Right, Verdict};

#[derive(Debug, Subcommand)]
pub(crate) enum AuthVerb {
    /// Say whether a principal has a right on a queue or a namespace, and which rule decides
    ///
    /// The exit status is 0 if it has the right, and 1 if not.
    Check(CheckArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file of principals
    #[arg(long, value_name = "FILE", env = "TALLYSTONE_AUTH_PRINCIPALS_FILE", hide_env_values = true)]
    principals: PathBuf,
    /// The principal
    #[arg(value_name = "PRINCIPAL")]
    principal: String,
    /// The right, such as consume
    #[arg(value_name = "RIGHT")]
    right: Right,
    /// The queue or the namespace; a trailing * stands for all names with this prefix
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Serialize)]
struct Checked {
    granted: bool,
    /// The rule that decides; absent: no rule grants the right.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

pub(crate) fn run(verb: AuthVerb, output: Output) -> Result<(), CliError> {
    let AuthVerb::Check(args) = verb;
    let CheckArgs { principals, principal, right, name } = args;
    let at = |error| CliError::usage(error).at(principals.display());
    let book = Book::read(&principals).map_err(at)?;
    let Some(summary) = book.summary(&principal) else {
        let error = CliError::usage(format!("the file has no principal {principal:?}"));
        return Err(match nearest(&principal, book.names()) {
            Some(near) => error.hint(format!("did you mean {near:?}?")),
            None => error,
        });
    };
    let verdict = match name.strip_suffix('*') {
        Some(prefix) => summary.rules.on_all_of(right, prefix),
        None => summary.rules.on(right, &name),
    };
    let granted = verdict.is_granted();
    let rule = match verdict {
        Verdict::Granted(rule) | Verdict::Denied(rule) => Some(rule.to_string()),
        Verdict::NotGranted => None,
    };
    output.one(&Checked { granted, rule }, |checked| match (checked.granted, &checked.rule) {
        (true, Some(rule)) => format!("{principal} has the right {right} on {name}, by the rule {rule}"),
        (false, Some(rule)) => {
            format!("{principal} does not have the right {right} on {name}: the rule {rule} denies it")
        }
        (_, None) => format!("{principal} does not have the right {right} on {name}: no rule grants it"),
    })?;
    if granted { Ok(()) } else { Err(CliError::refused(format!("{principal} does not have the right"))) }
}
