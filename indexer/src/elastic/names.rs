//! The names of the indices. Transitions have an index per day, so that a whole day can be dropped.

use crate::store::{HistoryError, TIME_MS_MAX};
use std::ops::RangeInclusive;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

/// Times that have an index: the years 1970 to 2200. A time outside comes from a broken clock, and its index would
/// never reach the end of its retention.
pub(super) const DATED_MS: RangeInclusive<u64> = 0..=TIME_MS_MAX;
pub(super) const DAY_MS: u64 = 86_400_000;
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

/// The names of one prefix.
#[derive(Debug)]
pub(super) struct IndexNames {
    /// Messages: one document each.
    pub(super) current: String,
    /// The beginnings of payloads.
    pub(super) payload: String,
    /// The watermarks of the sources.
    pub(super) progress: String,
    /// The losses of shards.
    pub(super) losses: String,
    /// Transitions: the pattern of the indices of all days.
    pub(super) historic: String,
    day_prefix: String,
}

impl IndexNames {
    pub(super) fn new(prefix: &str) -> Result<IndexNames, HistoryError> {
        check_prefix(prefix).map_err(|why| HistoryError::Failed(format!("the index prefix {why}")))?;
        Ok(IndexNames {
            current: format!("{prefix}-current"),
            payload: format!("{prefix}-payload"),
            progress: format!("{prefix}-progress"),
            losses: format!("{prefix}-losses"),
            historic: format!("{prefix}-historic-*"),
            day_prefix: format!("{prefix}-historic-"),
        })
    }

    /// The index of transitions at this time, Unix ms; `None`: the time is outside of [`DATED_MS`].
    pub(super) fn day(&self, at_ms: u64) -> Option<String> {
        if !DATED_MS.contains(&at_ms) {
            return None;
        }
        let day = OffsetDateTime::from_unix_timestamp((at_ms / 1_000) as i64).ok()?.date().format(DAY).ok()?;
        Some(format!("{}{day}", self.day_prefix))
    }

    /// The end of an index's day, Unix ms; `None`: the index is not one of transitions.
    pub(super) fn day_ends_ms(&self, index: &str) -> Option<u64> {
        let day = Date::parse(index.strip_prefix(&self.day_prefix)?, DAY).ok()?;
        let begin_ms = u64::try_from(day.midnight().assume_utc().unix_timestamp()).ok()? * 1_000;
        Some(begin_ms + DAY_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_day_is_an_index_and_an_index_a_day() {
        let names = IndexNames::new("t").unwrap();
        assert_eq!(names.day(0).unwrap(), "t-historic-1970.01.01");
        assert_eq!(names.day(1_795_219_199_999).unwrap(), "t-historic-2026.11.20");
        assert_eq!(names.day(1_795_219_200_000).unwrap(), "t-historic-2026.11.21");
        assert_eq!(names.day(*DATED_MS.end()).unwrap(), "t-historic-2200.12.31");
        assert_eq!((names.day(DATED_MS.end() + 1), names.day(u64::MAX)), (None, None));
        assert_eq!(names.day_ends_ms("t-historic-2026.11.20"), Some(1_795_219_200_000));
        for other in ["t-historic-", "t-historic-2026.13.01", "t-historic-x", "u-historic-2026.11.20", "t-current"] {
            assert_eq!(names.day_ends_ms(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for bad in ["", "-a", "_a", "A", "a*", "a,b", "a/b", "a b", &"a".repeat(65)] {
            assert!(IndexNames::new(bad).is_err(), "{bad}");
        }
        assert!(IndexNames::new("tally-stone_2").is_ok());
    }
}
