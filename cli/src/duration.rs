//! Durations and times as people type and read them: `500ms`, `2h 30m`, `2013-01-01T10:15:00Z`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For clap: milliseconds from text with units.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error} (expected a duration such as 500ms, 30s, 5m, 2h)"))?;
    u64::try_from(duration.as_millis()).map_err(|_| "too long".to_owned())
}

/// For clap: a time in Unix ms, from a date, `2013-01-01T10:15:00Z`, or from a duration before now, `90m`.
pub(crate) fn parse_moment(text: &str) -> Result<u64, String> {
    let moment = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    let since_1970 = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    let ms = since_1970.and_then(|since| u64::try_from(since.as_millis()).ok());
    ms.ok_or_else(|| "expected a time such as 2013-01-01T10:15:00Z, or 90m for 90 minutes ago".to_owned())
}

/// Milliseconds for people, in units that [`parse_ms`] reads: `365days`, `1h 30m`, `23ms`.
pub(crate) fn format_ms(ms: u64) -> String {
    const UNITS: [(u64, &str); 5] = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut left = ms;
    let mut parts = Vec::new();
    for (unit_ms, name) in UNITS {
        match left / unit_ms {
            0 => {}
            1 if name == "days" => parts.push("1day".to_owned()),
            n => parts.push(format!("{n}{name}")),
        }
        left %= unit_ms;
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// The age of something, for people: `6.0 s`, `2m 3s`.
pub(crate) fn format_ago(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format_ms(ms / 1_000 * 1_000),
    }
}

/// This machine's clock, in Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// A time in Unix milliseconds, for people: `2013-01-01T10:15:00.000Z`.
pub(crate) fn format_time(unix_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_units() {
        assert_eq!(parse_ms("500ms"), Ok(500));
        assert_eq!(parse_ms("30s"), Ok(30_000));
        assert_eq!(parse_ms("2h 30m"), Ok(9_000_000));
        assert_eq!(parse_ms("0s"), Ok(0));
        for bad in ["", "30", "-1s", "soon", "999999999999y"] {
            assert!(parse_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_can_be_typed() {
        let texts = [(0, "0s"), (23, "23ms"), (5_400_000, "1h 30m"), (86_400_000, "1day"), (31_536_000_000, "365days")];
        for (ms, text) in texts {
            assert_eq!(format_ms(ms), text);
            assert_eq!(parse_ms(text), Ok(ms));
        }
        assert_eq!(format_ago(123_456), "2m 3s");
    }

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
}
