//! `tallystone history …`, and what all verbs share that query history: where the answers come from, and how far they go.

mod check;
mod compare;
mod known;
mod repair;
mod source;

pub(crate) use known::check_known;
pub(crate) use source::{HistoryFlags, demo_file};

use crate::duration::{format_ago, format_time};
use crate::error::CliError;
use clap::Subcommand;
use tallystone_client::Watermark;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Compare queues with their history and print every difference
    Check(check::CheckArgs),
    /// Correct history after transitions were lost: messages that left their queue without a record, and outdated ones
    Repair(repair::RepairArgs),
}

pub(crate) async fn run(verb: HistoryVerb, session: &crate::connection::Session) -> Result<(), CliError> {
    match verb {
        HistoryVerb::Check(args) => check::run(args, session).await,
        HistoryVerb::Repair(args) => repair::run(args, session).await,
    }
}

/// Explains what is marked as uncertain.
pub(crate) const UNCERTAIN: &str = "Uncertain: transitions of the queue were lost, so the message may have changed since, \
     or be gone. `tallystone history repair` settles it.";

/// How recent an answer is, in a sentence.
pub(crate) fn behind(watermark: &Watermark) -> String {
    match (watermark.indexed_to_ms, watermark.behind_ms) {
        (Some(to_ms), Some(behind_ms)) => {
            format!("As of {}, {} before the query.", format_time(to_ms), format_ago(behind_ms))
        }
        _ => "History has no watermark yet; is the relay running?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_an_answer_goes_is_said() {
        let watermark = Watermark { indexed_to_ms: Some(1_357_035_300_000), behind_ms: Some(1_250) };
        assert_eq!(behind(&watermark), "As of 2013-01-01T10:15:00.000Z, 1.2 s before the query.");
        assert_eq!(watermark.answered_at_ms(), Some(1_357_035_301_250));
        assert!(behind(&Watermark::default()).contains("no watermark yet"));
    }
}
