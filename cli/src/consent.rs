//! Verbs that remove messages or counters, run messages again or give data up: they say what they do first, and let a
//! person decide.

use crate::error::CliError;
use crate::output::Output;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};

#[derive(Args, Debug)]
pub(crate) struct Consent {
    /// Skip the confirmation, which is requested only on a terminal
    #[arg(long)]
    yes: bool,
    /// Only show what would be affected
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

/// What a verb is about to do.
pub(crate) struct Plan<'a> {
    /// In the imperative, with the number: `Purge all messages of flights, now 2 messages`. A number that may grow until the
    /// verb acts is called that of now.
    pub(crate) what: String,
    pub(crate) queue: &'a str,
    pub(crate) messages: u64,
}

/// A dry run, as JSON.
#[derive(Serialize)]
struct DryRun<'a> {
    queue: &'a str,
    dry_run: bool,
    messages: u64,
}

impl Consent {
    /// Whether nothing may change.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether the number of messages will be shown.
    pub(crate) fn shows_number(&self) -> bool {
        self.dry_run || (!self.yes && is_on_terminal())
    }

    /// The dry run of a verb whose messages are named.
    pub(crate) fn of_ids(&self, verb: &str, queue: &str, ids: usize, output: Output) -> Result<(), CliError> {
        let what = format!("{verb} {} of {queue}", messages(ids as u64));
        self.given(&Plan { what, queue, messages: ids as u64 }, output).map(drop)
    }

    /// Whether to do it: not in a dry run. On a terminal a person confirms it; a script has confirmed it by calling.
    pub(crate) fn given(&self, plan: &Plan<'_>, output: Output) -> Result<bool, CliError> {
        let dry_run = DryRun { queue: plan.queue, dry_run: true, messages: plan.messages };
        self.given_for(&plan.what, &dry_run, output)
    }

    /// As [`given`](Consent::given), for what is no message; `dry_run`: a dry run, as JSON.
    pub(crate) fn given_for(&self, what: &str, dry_run: &impl Serialize, output: Output) -> Result<bool, CliError> {
        if self.dry_run {
            output.one(dry_run, |_| format!("{what}: not done, --dry-run."))?;
            return Ok(false);
        }
        self.to(what).map(|()| true)
    }

    /// Fails unless it is given; the verb has no dry run.
    pub(crate) fn to(&self, what: &str) -> Result<(), CliError> {
        consent_to(what, self.yes)
    }
}

/// Lets a person on a terminal confirm what is about to be done, unless `yes`. A script has confirmed it by calling.
pub(crate) fn consent_to(what: &str, yes: bool) -> Result<(), CliError> {
    if yes || !is_on_terminal() || confirmed(what)? {
        return Ok(());
    }
    Err(CliError::refused("not confirmed, so nothing was changed").hint("--yes does not wait for a confirmation"))
}

fn is_on_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The question goes to stderr: stdout may go to a file.
fn confirmed(what: &str) -> Result<bool, CliError> {
    let mut answer = String::new();
    let mut stderr = std::io::stderr();
    write!(stderr, "{}? [y/N] ", visible(what))
        .and_then(|()| stderr.flush())
        .and_then(|()| std::io::stdin().lock().read_line(&mut answer))
        .map_err(CliError::usage)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// `1 message`, `2,000 messages`
pub(crate) fn messages(n: u64) -> String {
    match n {
        1 => "1 message".to_owned(),
        n => format!("{} messages", crate::output::grouped(n)),
    }
}
