//! `tallystone history …`, and what all verbs share that ask history or keep it: where the answers come from, how far
//! they go, and what a server runs beside the queue so that there is one.

mod beside;
mod check;
mod source;

pub(crate) use beside::{History, elastic_options, kafka_options, prune};
pub(crate) use source::{HistoryFlags, demo_file};

use crate::duration::{format_ago, format_time};
use crate::error::CliError;
use crate::msg::pairs_text;
use clap::Subcommand;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_client::Watermark;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Compare queues with the index and name every difference
    Check(check::CheckArgs),
}

pub(crate) async fn run(verb: HistoryVerb, session: &crate::connection::Session) -> Result<(), CliError> {
    match verb {
        HistoryVerb::Check(args) => check::run(args, session).await,
    }
}

/// How far an answer goes, in a sentence.
pub(crate) fn behind(watermark: &Watermark) -> String {
    match (watermark.indexed_to_ms, watermark.behind_ms) {
        (Some(to_ms), Some(behind_ms)) => {
            format!("As of {}, {} before the question.", format_time(to_ms), format_ago(behind_ms))
        }
        _ => "History does not say yet how far it goes; is the relay running?".to_owned(),
    }
}

/// For clap: a moment as Unix ms, from a date, `2013-01-01T10:15:00Z`, or from how long ago it was, `90m`.
pub(crate) fn parse_moment(text: &str) -> Result<u64, String> {
    let moment = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    let since_1970 = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    let ms = since_1970.and_then(|since| u64::try_from(since.as_millis()).ok());
    ms.ok_or_else(|| "say it like 2013-01-01T10:15:00Z, or like 90m for that long ago".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_or_how_long_ago() {
        assert_eq!(parse_moment("2013-01-01T10:15:00Z"), Ok(1_357_035_300_000));
        assert_eq!(parse_moment("2013-01-01 10:15:00"), Ok(1_357_035_300_000));
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let hour_ago = parse_moment("1h").unwrap();
        assert!((now_ms - hour_ago).abs_diff(3_600_000) < 10_000);
        for bad in ["", "yesterday", "1", "9999999999999y", "1960-01-01T00:00:00Z"] {
            assert!(parse_moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn how_far_an_answer_goes_is_said() {
        let watermark = Watermark { indexed_to_ms: Some(1_357_035_300_000), behind_ms: Some(1_250) };
        assert_eq!(behind(&watermark), "As of 2013-01-01T10:15:00.000Z, 1.2 s before the question.");
        assert_eq!(watermark.answered_at_ms(), Some(1_357_035_301_250));
        assert!(behind(&Watermark::default()).contains("does not say yet"));
    }
}
