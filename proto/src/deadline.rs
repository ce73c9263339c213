//! The caller's deadline, from the `grpc-timeout` header. tonic drops a call whose deadline has passed. Calls that wait,
//! or work in steps, end a little earlier so that their answer still arrives.

use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The latest time to answer: a fifth of the timeout, at most a second, before the deadline. `None`: the caller sets no
/// deadline.
pub fn answer_by(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    let margin = (timeout / 5).min(Duration::from_secs(1));
    Instant::now().checked_add(timeout - margin)
}

/// Up to eight digits and a unit.
fn parse(header: &str) -> Option<Duration> {
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_grpc_are_parsed() {
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        for bad in ["", "m", "123456789m", "-1S", "1X", "1ä"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
