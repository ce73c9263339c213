//! Durations as people type and read them: `500ms`, `30s`, `5m`, `2h 30m`.

use std::time::Duration;

/// For clap: milliseconds from text with units.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let duration =
        humantime::parse_duration(text).map_err(|error| format!("{error} (say it like 500ms, 30s, 5m, 2h)"))?;
    u64::try_from(duration.as_millis()).map_err(|_| "too long".to_owned())
}

/// Milliseconds for a person.
pub(crate) fn format_ms(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// How long ago something was, for a person: `6.0 s`, `2m 3s`.
pub(crate) fn format_ago(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => humantime::format_duration(Duration::from_secs(ms / 1_000)).to_string(),
    }
}

/// A moment in Unix milliseconds for a person: `2013-01-01T10:15:00.000Z`.
pub(crate) fn format_time(unix_ms: u64) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
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
        assert_eq!(format_ms(5_400_000), "1h 30m");
    }
}
