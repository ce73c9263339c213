//! The names that callers choose: parsed once when a request arrives, valid from then on.

use crate::limits::*;
use crate::refusal::Refusal;
use std::collections::BTreeMap;

/// 1 to 128 of `A-Z a-z 0-9 . _ - : /`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct QueueName(String);

/// The names of internal queues begin with this: those of the rollup jobs.
pub const INTERNAL_QUEUES: &str = "rollup/";

impl QueueName {
    /// Whether this is a queue of the service itself, such as those of the rollup jobs.
    pub fn is_internal(&self) -> bool {
        self.0.starts_with(INTERNAL_QUEUES)
    }

    /// Parses a name; the refusal names `field`.
    pub fn parse(field: &'static str, name: &str) -> Result<Self, Refusal> {
        check_length(field, name, 1, QUEUE_NAME_BYTES_MAX)?;
        match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-:/".contains(*c))) {
            Some(c) => {
                let found = if c == ' ' { "a space".to_owned() } else { format!("{c:?}") };
                let why = format!("the queue name has {found}; it may have only A-Z a-z 0-9 . _ - : /");
                Err(Refusal::invalid(field, why))
            }
            None => Ok(QueueName(name.to_owned())),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for QueueName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// A message id: 1 to 200 bytes of text without control characters (Q3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct MessageId(String);

impl MessageId {
    /// Parses a name; the refusal names `field`.
    pub fn parse(field: &'static str, id: impl Into<String>) -> Result<Self, Refusal> {
        let id = id.into();
        check_text(field, &id, 1, MESSAGE_ID_BYTES_MAX)?;
        Ok(MessageId(id))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Up to 4 key-value pairs, sorted by key (Q3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Metadata(BTreeMap<String, String>);

/// The keys of the pairs that say to which trace a message belongs (O2).
pub const TRACE_KEYS: [&str; 2] = ["traceparent", "tracestate"];

impl Metadata {
    /// Parses pairs; the refusal names the field `metadata`.
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, Refusal> {
        if pairs.len() > METADATA_PAIRS_MAX {
            let why = format!("has {} pairs; the maximum is {METADATA_PAIRS_MAX}", pairs.len());
            return Err(Refusal::invalid("metadata", why));
        }
        check_pairs("metadata", &pairs)?;
        Ok(Metadata(pairs))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The pairs, sorted by key.
    pub fn pairs(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The pairs without the trace context. A pair with the key `but` stays.
    pub(crate) fn without_trace(&self, but: Option<&str>) -> Metadata {
        let stays = |key: &str| !TRACE_KEYS.contains(&key) || Some(key) == but;
        Metadata(self.0.iter().filter(|(key, _)| stays(key)).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Consumes it and returns the pairs.
    pub fn into_pairs(self) -> BTreeMap<String, String> {
        self.0
    }
}

/// Checks the lengths and characters of key-value pairs.
pub fn check_pairs(field: &'static str, pairs: &BTreeMap<String, String>) -> Result<(), Refusal> {
    for (key, value) in pairs {
        let at = |refusal: Refusal| match refusal {
            Refusal::Invalid { why, .. } => Refusal::invalid(field, format!("pair {key:.80?}: {why}")),
            other => other,
        };
        check_text(field, key, 1, METADATA_KEY_BYTES_MAX).map_err(at)?;
        check_text(field, value, 1, METADATA_VALUE_BYTES_MAX).map_err(at)?;
    }
    Ok(())
}

/// Text of `min` to `max` bytes without control characters.
pub fn check_text(field: &'static str, text: &str, min: usize, max: usize) -> Result<(), Refusal> {
    check_length(field, text, min, max)?;
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(Refusal::invalid(field, format!("has the control character {c:?}"))),
        None => Ok(()),
    }
}

fn check_length(field: &'static str, text: &str, min: usize, max: usize) -> Result<(), Refusal> {
    match text.len() {
        0 if min > 0 => Err(Refusal::invalid(field, "is empty")),
        length if length > max => Err(Refusal::invalid(field, format!("is {length} bytes long; the maximum is {max}"))),
        _ => Ok(()),
    }
}

/// Parses a signed number of the wire as a whole number within bounds.
pub fn check_range(field: &'static str, value: i64, min: u64, max: u64) -> Result<u64, Refusal> {
    match u64::try_from(value) {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(Refusal::invalid(field, format!("is {value}; must be from {min} to {max}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q3_names_have_bounds_and_no_control_characters() {
        assert!(QueueName::parse("queue", "orders.eu-1:a/b_c").is_ok());
        for bad in ["", "a b", "ä", "a{b}", &"x".repeat(129)] {
            assert!(QueueName::parse("queue", bad).is_err(), "{bad}");
        }
        assert!(MessageId::parse("id", "2013-01-01T10:15:00Z/UA1545/EWR").is_ok());
        for bad in ["", "a\nb", "\u{7f}", &"x".repeat(201)] {
            assert!(MessageId::parse("id", bad).is_err(), "{bad}");
        }
        let pairs = |n: usize| (0..n).map(|i| (format!("k{i}"), "v".to_owned())).collect::<BTreeMap<_, _>>();
        assert!(Metadata::parse(pairs(4)).is_ok());
        assert!(Metadata::parse(pairs(5)).is_err());
        assert!(Metadata::parse([("k".to_owned(), String::new())].into()).is_err());
        assert_eq!(check_range("lease_ms", -1, 0, 5), Err(Refusal::invalid("lease_ms", "is -1; must be from 0 to 5")));
    }
}
