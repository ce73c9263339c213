//! Queue shards, and the one function that chooses a shard for a message (Q17).

use crate::config::QueueConfig;
use crate::fencing;
use crate::message::NewMessage;
use crate::names::{MessageId, QueueName};
use serde::{Deserialize, Serialize};

/// One shard of a queue: the unit of order, atomicity and placement. All its keys have one hash tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    /// The queue.
    pub queue: QueueName,
    /// From 0.
    pub number: u16,
}

/// Shards with consecutive numbers, among which one hash chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// The lowest number.
    pub first: u16,
    /// How many shards, at least 1.
    pub count: u16,
}

impl Generation {
    /// The numbers of its shards, ascending.
    pub fn numbers(self) -> std::ops::Range<u16> {
        self.first..self.first.saturating_add(self.count)
    }

    /// Whether the shard of this number is one of them.
    pub fn has(self, number: u16) -> bool {
        self.numbers().contains(&number)
    }

    /// The number of the shard of a message: chosen by its exclusivity value, so that exclusivity holds within one shard, or by
    /// its id.
    pub fn number_of(self, exclusivity_value: Option<&str>, id: &MessageId) -> u16 {
        self.first + Shard::number_of(self.count, exclusivity_value, id)
    }
}

/// How the messages of a queue are spread over its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    current: Generation,
    exclusivity_key: Option<String>,
}

impl Layout {
    /// Of a queue with this configuration.
    pub fn of(config: &QueueConfig) -> Layout {
        // Most queues have one shard, which no key chooses.
        let exclusivity_key = if config.shards > 1 { config.queue_type.key().map(str::to_owned) } else { None };
        Layout { current: Generation { first: 0, count: config.shards }, exclusivity_key }
    }

    /// Of a queue with one shard, the first.
    pub fn plain() -> Layout {
        Layout { current: Generation { first: 0, count: 1 }, exclusivity_key: None }
    }

    /// Whether the first shard is the only one.
    pub fn is_plain(&self) -> bool {
        self.current.first == 0 && self.current.count == 1
    }

    /// The shards that take new messages.
    pub fn current(&self) -> Generation {
        self.current
    }

    /// The numbers of all shards, ascending, the first one (0) among them.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        self.current.numbers()
    }

    /// Whether the queue has a shard of this number.
    pub fn has(&self, number: u16) -> bool {
        self.current.has(number)
    }

    /// The metadata key whose value chooses the shard of a message; `None`: its id does.
    pub fn exclusivity_key(&self) -> Option<&str> {
        self.exclusivity_key.as_deref()
    }

    /// The number of the shard that takes this message. One that lacks the key of an exclusive queue is refused by every shard.
    pub fn number_of(&self, message: &NewMessage) -> u16 {
        let value = self.exclusivity_key.as_ref().map(|key| message.metadata.get(key).unwrap_or_default());
        self.current.number_of(value, &message.id)
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
