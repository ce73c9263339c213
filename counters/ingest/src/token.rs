//! The token of a record.
//!
//! The counters identify an event by its counter, time and token. The Rust binding of Kafka does not have the topic's id, so a
//! checksum of the topic's name and of the record replaces it. A topic that is deleted and created again has other records at
//! the same offsets: other times or contents, so other events. A copy of a topic that is restored under the same name has the
//! same records, and they count once.

use crate::record::Record;
use xxhash_rust::xxh3::Xxh3;

/// 40 hex digits, which the store packs into 20 bytes: partition, offset, checksum. The text is in the store, so it must not
/// change.
pub(crate) fn token(record: &Record) -> String {
    let mut hash = Xxh3::new();
    hash.update(record.topic.as_bytes());
    hash.update(&record.at_ms.unwrap_or(-1).to_le_bytes());
    for part in [&record.key, &record.value] {
        let length = part.as_ref().map_or(u64::MAX, |part| part.len() as u64);
        hash.update(&length.to_le_bytes());
        hash.update(part.as_deref().unwrap_or_default());
    }
    format!("{:08x}{:016x}{:016x}", record.place.partition, record.offset, hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;
    use std::collections::BTreeSet;
    use tallystone_kafka::TopicPartition;

    fn of(topic: &str, partition: i32, offset: i64, at_ms: i64, key: Option<&str>, value: &str) -> String {
        let time = Timestamp::CreateTime(at_ms);
        let (value, key) = (Some(value.as_bytes().to_vec()), key.map(|key| key.as_bytes().to_vec()));
        let message = OwnedMessage::new(value, key, topic.to_owned(), time, partition, offset, None);
        token(&Record::of(&message, TopicPartition { topic: 0, partition }, false))
    }

    #[test]
    fn n17_a_token_is_of_one_record_and_does_not_change() {
        let first = of("adds", 3, 70_000, 5, Some("k"), "v");
        assert_eq!(first, of("adds", 3, 70_000, 5, Some("k"), "v"));
        assert!(first.starts_with("000000030000000000011170") && first.len() == 40, "{first}");
        let all = [
            first.clone(),
            of("adds.late", 3, 70_000, 5, Some("k"), "v"),
            of("adds", 4, 70_000, 5, Some("k"), "v"),
            of("adds", 3, 70_001, 5, Some("k"), "v"),
            of("adds", 3, 70_000, 6, Some("k"), "v"),
            of("adds", 3, 70_000, 5, Some("kv"), ""),
            of("adds", 3, 70_000, 5, Some(""), "kv"),
            of("adds", 3, 70_000, 5, None, "kv"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(
            all.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()))
        );
    }
}
