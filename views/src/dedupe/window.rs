//! The windows within which a pair counts once.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Within what a pair counts once.
#[derive(Clone, Debug, PartialEq)]
pub enum Window {
    /// Every view counts.
    None,
    /// A new window begins at each multiple of this many ms since 1970.
    Tumbling(u64),
    /// The window of a pair begins with its first view, and lasts this many ms: at most [`SLIDING_MS_MAX`].
    Sliding(u64),
    /// The calendar day of a time zone.
    Day(TimeZone),
}

/// The longest sliding window.
pub const SLIDING_MS_MAX: u64 = 24 * 3_600_000;

/// The calendar day at a time (Unix ms), and its first and last ms.
pub fn day_at(zone: &TimeZone, at_ms: u64) -> (Date, u64, u64) {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX);
    let day = zone.to_datetime(at).date();
    let first_ms = |day: Date| {
        let first = day.to_zoned(zone.clone()).map_or(Timestamp::MAX, |first| first.timestamp());
        u64::try_from(first.as_millisecond()).unwrap_or(0)
    };
    let next = day.tomorrow().map_or(u64::MAX, first_ms);
    (day, first_ms(day), next - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap()
    }

    #[test]
    fn v6_a_day_follows_its_time_zone_through_a_change_of_clocks() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let (day, first, last) = day_at(&berlin, ms("2026-03-29T10:00:00Z"));
        assert_eq!((day.to_string().as_str(), first), ("2026-03-29", ms("2026-03-28T23:00:00Z")));
        assert_eq!(last + 1, ms("2026-03-29T22:00:00Z"), "a day of 23 hours");
        let name_at = |at_ms| day_at(&berlin, at_ms).0.to_string();
        assert_eq!((name_at(last), name_at(last + 1)), ("2026-03-29".to_owned(), "2026-03-30".to_owned()));
    }
}
