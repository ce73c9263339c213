//! A record as it was read, and where it was first written.

use rdkafka::Message;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use tallystone_kafka::{Position, TopicPartition};

/// Headers of records that ingest writes.
pub(crate) const REASON: &str = "tallystone-reason";
const TOPIC: &str = "tallystone-source-topic";
const PARTITION: &str = "tallystone-source-partition";
const OFFSET: &str = "tallystone-source-offset";
const TIME: &str = "tallystone-source-time-ms";
const REWRITES: &str = "tallystone-rewrites";

/// The longest name of a topic that Kafka allows, and the longest number.
const TOPIC_BYTES_MAX: usize = 249;
const NUMBER_BYTES_MAX: usize = 20;
/// What the headers of a record that ingest writes take at most, with a reason of up to 1,000 characters.
pub(crate) const HEADERS_BYTES_MAX: usize = 8 * 1024;

/// A record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) place: TopicPartition,
    pub(crate) topic: String,
    pub(crate) offset: i64,
    /// Its time, Unix ms; `None`: it has none.
    pub(crate) at_ms: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    /// The position after it.
    pub(crate) position: Position,
    pub(crate) origin: Origin,
}

/// Where a record was first written, and how often it was written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    topic: String,
    partition: String,
    offset: String,
    /// Unix ms; empty: it had no time.
    time: String,
    pub(crate) rewrites: u32,
}

impl Record {
    /// That of a reader. `is_late`: it is of the topic to which ingest writes records again.
    pub(crate) fn of(message: &impl Message, place: TopicPartition, is_late: bool) -> Record {
        let at_ms = message.timestamp().to_millis();
        let first = Origin {
            topic: message.topic().to_owned(),
            partition: message.partition().to_string(),
            offset: message.offset().to_string(),
            time: at_ms.map(|at_ms| at_ms.to_string()).unwrap_or_default(),
            rewrites: 0,
        };
        let written = if is_late { message.headers().and_then(Origin::read) } else { None };
        Record {
            place,
            topic: message.topic().to_owned(),
            offset: message.offset(),
            at_ms,
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            position: Position::after(message),
            origin: written.unwrap_or(first),
        }
    }
}

impl Origin {
    /// `None`: these are not the headers that ingest writes. Another program may have written longer ones, which could not be written
    /// again.
    fn read(headers: &impl Headers) -> Option<Origin> {
        let text = |name: &str, bytes_max: usize| {
            let found = headers.iter().find(|header| header.key == name)?;
            let text = String::from_utf8_lossy(found.value?).into_owned();
            (text.len() <= bytes_max).then_some(text)
        };
        let number = |name: &str| text(name, NUMBER_BYTES_MAX);
        let (topic, partition, offset) = (text(TOPIC, TOPIC_BYTES_MAX)?, number(PARTITION)?, number(OFFSET)?);
        Some(Origin { topic, partition, offset, time: number(TIME)?, rewrites: number(REWRITES)?.parse().ok()? })
    }

    /// The headers of a record that is written for this one.
    pub(crate) fn headers(&self, reason: &str, rewrites: u32) -> OwnedHeaders {
        let rewrites = rewrites.to_string();
        let mut headers = OwnedHeaders::new_with_capacity(6);
        for (key, value) in [
            (REASON, reason),
            (TOPIC, &self.topic),
            (PARTITION, &self.partition),
            (OFFSET, &self.offset),
            (TIME, &self.time),
            (REWRITES, &rewrites),
        ] {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    #[test]
    fn n17_a_record_that_is_written_again_keeps_its_origin() {
        let message = |topic: &str, offset, headers| {
            let (value, time) = (Some(b"v".to_vec()), Timestamp::CreateTime(offset + 1_000));
            OwnedMessage::new(value, None, topic.to_owned(), time, 3, offset, headers)
        };
        let place = |topic| TopicPartition { topic, partition: 3 };
        let first = Record::of(&message("adds", 7, None), place(0), false);
        let headers = first.origin.headers("TOO_OLD", 1);
        let again = Record::of(&message("adds.late", 9, Some(headers.clone())), place(1), true);
        assert_eq!(again.origin, Origin { rewrites: 1, ..first.origin.clone() });
        assert_eq!((again.offset, again.at_ms), (9, Some(1_009)));
        let forged = Record::of(&message("adds", 9, Some(headers)), place(0), false);
        assert_eq!((forged.origin.offset.as_str(), forged.origin.rewrites), ("9", 0), "a producer cannot set it");
        let long = |bytes: usize| "0".repeat(bytes);
        for origin in [
            Origin { topic: long(TOPIC_BYTES_MAX + 1), ..first.origin.clone() },
            Origin { offset: long(NUMBER_BYTES_MAX + 1), ..first.origin.clone() },
            Origin { time: long(NUMBER_BYTES_MAX + 1), ..first.origin.clone() },
        ] {
            let late = Record::of(&message("adds.late", 9, Some(origin.headers("TOO_OLD", 1))), place(1), true);
            assert_eq!(
                (late.origin.topic.as_str(), late.origin.rewrites),
                ("adds.late", 0),
                "too long to be written again"
            );
        }
    }
}
