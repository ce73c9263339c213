//! The names of the indices. Transitions and messages have several indices, each of some hours, so that whole indices can
//! be dropped. `hours` chooses which hour is in which index.

use crate::store::{HistoryError, TIME_MS_MAX};
use std::ops::RangeInclusive;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

/// Times that have an index: the years 1970 to 2200. A time outside comes from a broken clock, and its index would
/// never reach the end of its retention.
pub(super) const DATED_MS: RangeInclusive<u64> = 0..=TIME_MS_MAX;
pub(super) const HOUR_MS: u64 = 3_600_000;
const PREFIX_BYTES_MAX: usize = 64;
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year].[month].[day]");

/// Checks the prefix of index names; the error says which prefixes are possible.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_allowed = |c: char| is_plain(c) || c == '-' || c == '_';
    match prefix.starts_with(is_plain) && prefix.chars().all(is_allowed) && prefix.len() <= PREFIX_BYTES_MAX {
        true => Ok(()),
        false => {
            Err(format!("{prefix:.80?} is not 1 to {PREFIX_BYTES_MAX} of a-z 0-9 - _, the first a letter or digit"))
        }
    }
}

/// What is in several indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Transitions, by the hour in which they happened.
    Transitions,
    /// Messages, by the hour in which they were enqueued. Their payloads are in indices of the same spans.
    Messages,
}

impl Kind {
    /// The word in index names.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Transitions => "historic",
            Kind::Messages => "current",
        }
    }
}

/// The names of one prefix.
#[derive(Debug)]
pub(super) struct IndexNames {
    /// Messages: the patterns of all indices.
    pub(super) current: String,
    /// The one index of messages that programs wrote before messages had several.
    pub(super) undated: String,
    /// The watermarks of the sources.
    pub(super) progress: String,
    /// The losses of shards.
    pub(super) losses: String,
    /// The hours and their indices.
    pub(super) hours: String,
    /// Transitions: the pattern of all indices.
    pub(super) historic: String,
    prefix: String,
}

impl IndexNames {
    pub(super) fn new(prefix: &str) -> Result<IndexNames, HistoryError> {
        check_prefix(prefix).map_err(|why| HistoryError::Failed(format!("the index prefix {why}")))?;
        Ok(IndexNames {
            current: format!("{prefix}-current,{prefix}-current-*"),
            undated: format!("{prefix}-current"),
            progress: format!("{prefix}-progress"),
            losses: format!("{prefix}-losses"),
            hours: format!("{prefix}-hours"),
            historic: format!("{prefix}-historic-*"),
            prefix: prefix.to_owned(),
        })
    }

    /// The indices of a kind, as one pattern.
    pub(super) fn pattern(&self, kind: Kind) -> &str {
        match kind {
            Kind::Transitions => &self.historic,
            Kind::Messages => &self.current,
        }
    }

    /// The name of a template, and the patterns of its indices.
    pub(super) fn template(&self, word: &str, patterns: &[&str]) -> (String, Vec<String>) {
        let name = format!("{}-{word}", self.prefix);
        let patterns = patterns.iter().map(|suffix| format!("{name}{suffix}")).collect();
        (name, patterns)
    }

    /// The index of a kind that begins with the day of this hour.
    pub(super) fn of_day(&self, kind: Kind, hour: u64) -> String {
        format!("{}-{}-{}", self.prefix, kind.word(), day(hour))
    }

    /// The index of a kind that begins with this hour.
    pub(super) fn of_hour(&self, kind: Kind, hour: u64) -> String {
        format!("{}-{:02}", self.of_day(kind, hour), hour % 24)
    }

    /// Whether it is the one index of messages that has no day in its name.
    pub(super) fn is_undated(&self, index: &str) -> bool {
        index == self.undated
    }

    /// The index with the payloads of the messages of an index.
    pub(super) fn payloads_of(&self, messages: &str) -> String {
        format!("{}-payload{}", self.prefix, messages.strip_prefix(&self.undated).unwrap_or_default())
    }

    /// The hour with which an index begins; `None`: it is not an index of this kind. The index of messages without a day
    /// begins with the first hour of all.
    pub(super) fn begins(&self, kind: Kind, index: &str) -> Option<u64> {
        let span = index.strip_prefix(&self.prefix)?.strip_prefix('-')?.strip_prefix(kind.word())?;
        if span.is_empty() {
            return (kind == Kind::Messages).then_some(0);
        }
        let span = span.strip_prefix('-')?;
        let (day, hour) = match span.split_once('-') {
            Some((day, hour)) => (day, hour.parse().ok().filter(|of_day| *of_day < 24 && hour.len() == 2)?),
            None => (span, 0),
        };
        let day = Date::parse(day, DAY).ok()?.midnight().assume_utc().unix_timestamp();
        Some(u64::try_from(day).ok()? * 1_000 / HOUR_MS + hour)
    }
}

/// The hour of a time, in hours since 1970.
pub(super) fn hour_of(at_ms: u64) -> u64 {
    at_ms / HOUR_MS
}

fn day(hour: u64) -> String {
    // Every hour has a day: `flaw` refuses events outside of DATED_MS.
    let seconds = i64::try_from(hour * 3_600).unwrap_or_default();
    let day = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.date().format(DAY).ok());
    day.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_an_index_is_named_by_the_hour_with_which_it_begins() {
        let names = IndexNames::new("t").unwrap();
        let hour = hour_of(1_795_176_000_000) + 2;
        assert_eq!(names.of_day(Kind::Transitions, 0), "t-historic-1970.01.01");
        assert_eq!(names.of_day(Kind::Transitions, hour_of(1_795_219_199_999)), "t-historic-2026.11.20");
        assert_eq!(names.of_day(Kind::Messages, hour_of(1_795_219_200_000)), "t-current-2026.11.21");
        assert_eq!(names.of_day(Kind::Transitions, hour_of(*DATED_MS.end())), "t-historic-2200.12.31");
        assert_eq!(names.of_hour(Kind::Messages, hour), "t-current-2026.11.20-14");
        for kind in [Kind::Transitions, Kind::Messages] {
            assert_eq!(names.begins(kind, &names.of_day(kind, hour)), Some(hour - 14));
            assert_eq!(names.begins(kind, &names.of_hour(kind, hour)), Some(hour));
        }
        assert_eq!(names.begins(Kind::Messages, "t-current"), Some(0));
        let foreign = ["t-historic", "t-historic-", "t-historic-2026.13.01", "t-historic-x", "u-historic-2026.11.20"];
        for other in foreign.iter().chain(&["t-historic-2026.11.20-24", "t-historic-2026.11.20-1", "t-current"]) {
            assert_eq!(names.begins(Kind::Transitions, other), None, "{other}");
        }
    }

    #[test]
    fn payloads_have_the_span_of_their_messages() {
        let names = IndexNames::new("t").unwrap();
        assert_eq!(names.payloads_of("t-current"), "t-payload");
        assert_eq!(names.payloads_of("t-current-2026.11.20-14"), "t-payload-2026.11.20-14");
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for bad in ["", "-a", "_a", "A", "a*", "a,b", "a/b", "a b", &"a".repeat(65)] {
            assert!(IndexNames::new(bad).is_err(), "{bad}");
        }
        assert!(IndexNames::new("tally-stone_2").is_ok());
    }
}
