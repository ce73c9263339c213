//! Queue shards, and the one function that chooses a shard for a message (Q17).

use crate::config::QueueConfig;
use crate::fencing;
use crate::message::NewMessage;
use crate::names::{MessageId, QueueName};

/// One shard of a queue: the unit of order, atomicity and placement. All its keys have one hash tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    /// The queue.
    pub queue: QueueName,
    /// From 0.
    pub number: u16,
}

/// How the messages of a queue are spread over its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of shards, at least 1.
    pub shards: u16,
    /// The metadata key whose value chooses the shard of a message; `None`: its id does.
    pub exclusivity_key: Option<String>,
}

impl Layout {
    /// Of a queue with this configuration.
    pub fn of(config: &QueueConfig) -> Layout {
        // Most queues have one shard, which no key chooses.
        let exclusivity_key = if config.shards > 1 { config.queue_type.key().map(str::to_owned) } else { None };
        Layout { shards: config.shards, exclusivity_key }
    }

    /// The number of the shard that takes this message. One that lacks the key of an exclusive queue is refused by every shard.
    pub fn number_of(&self, message: &NewMessage) -> u16 {
        let value = self.exclusivity_key.as_ref().map(|key| message.metadata.get(key).unwrap_or_default());
        Shard::number_of(self.shards, value, &message.id)
    }
}

impl Shard {
    /// The shard with the queue's configuration; the only shard of most queues.
    pub fn first(queue: &QueueName) -> Self {
        Shard { queue: queue.clone(), number: 0 }
    }

    /// All shards of a queue, the first one first.
    pub fn all(queue: &QueueName, shards: u16) -> impl DoubleEndedIterator<Item = Shard> + ExactSizeIterator + use<> {
        let queue = queue.clone();
        (0..shards).map(move |number| Shard { queue: queue.clone(), number })
    }

    /// The number of the shard of a message: chosen by its exclusivity value, so that exclusivity holds within one shard, or by
    /// its id.
    pub fn number_of(shards: u16, exclusivity_value: Option<&str>, id: &MessageId) -> u16 {
        match shards {
            0 | 1 => 0,
            n => (fnv1a(exclusivity_value.unwrap_or(id.as_str()).as_bytes()) % u64::from(n)) as u16,
        }
    }

    /// Another shard of the same queue.
    pub fn sibling(&self, number: u16) -> Self {
        Shard { queue: self.queue.clone(), number }
    }

    /// The fencing token of a lease with this number of the shard's sequence.
    pub fn token(&self, sequence: u64) -> u64 {
        fencing::token(self.number, sequence)
    }

    /// The number of the shard's sequence in a fencing token; 0 stays 0: no lease. A token of another shard gets a number that no
    /// lease has.
    pub fn sequence_of(&self, fencing_token: u64) -> u64 {
        match fencing_token == 0 || fencing::shard_of(fencing_token) == u64::from(self.number) {
            true => fencing::sequence_of(fencing_token),
            false => 1,
        }
    }

    /// The hash tag: the text between the braces of every key of this shard.
    pub fn tag(&self) -> String {
        format!("{}/{}", self.queue, self.number)
    }

    /// The shard of a hash tag.
    pub fn of_tag(tag: &str) -> Option<Self> {
        let (queue, number) = tag.rsplit_once('/')?;
        Some(Shard { queue: QueueName::parse("queue", queue).ok()?, number: number.parse().ok()? })
    }
}

/// FNV-1a, 64 bits. It must never change, because stored messages depend on it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_a_value_always_meets_itself() {
        let id = |text: &str| MessageId::parse("id", text).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..64 {
            let value = format!("tail-{n}");
            let number = Shard::number_of(8, Some(&value), &id("a"));
            assert_eq!(number, Shard::number_of(8, Some(&value), &id("b")));
            seen.insert(number);
        }
        assert_eq!(seen.len(), 8, "64 values reach all 8 shards");
        assert_eq!(Shard::number_of(1, None, &id("a")), 0);
        assert_eq!(
            (fnv1a(b"a"), fnv1a(b"foobar")),
            (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8),
            "published vectors"
        );
    }

    #[test]
    fn q17_a_fencing_token_is_known_only_to_its_shard() {
        let shard = |number| Shard { queue: QueueName::parse("queue", "q").unwrap(), number };
        let token = shard(63).token(1_780_000_000_000_000);
        assert_eq!(shard(63).sequence_of(token), 1_780_000_000_000_000);
        assert_eq!(shard(62).sequence_of(token), 1, "no lease has this number");
        assert_eq!(shard(5).sequence_of(0), 0, "it stays the word for no lease");
    }
}
