//! Queue shards, and the one function that chooses a shard for a message (Q17).

use crate::names::{MessageId, QueueName};

/// One shard of a queue: the unit of order, atomicity and placement. All its keys have one hash tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    /// The queue.
    pub queue: QueueName,
    /// From 0.
    pub number: u16,
}

impl Shard {
    /// The shard with the queue's configuration; the only shard of most queues.
    pub fn first(queue: &QueueName) -> Self {
        Shard { queue: queue.clone(), number: 0 }
    }

    /// The shard of a message: chosen by its exclusivity value, so that exclusivity holds within one shard, or by its id.
    pub fn route(queue: &QueueName, shards: u16, exclusivity_value: Option<&str>, id: &MessageId) -> Self {
        let number = match shards {
            0 | 1 => 0,
            n => (fnv1a(exclusivity_value.unwrap_or(id.as_str()).as_bytes()) % u64::from(n)) as u16,
        };
        Shard { queue: queue.clone(), number }
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
        let queue = QueueName::parse("queue", "q").unwrap();
        let id = |text: &str| MessageId::parse("id", text).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..64 {
            let value = format!("tail-{n}");
            let shard = Shard::route(&queue, 8, Some(&value), &id("a"));
            assert_eq!(shard, Shard::route(&queue, 8, Some(&value), &id("b")));
            seen.insert(shard.number);
        }
        assert_eq!(seen.len(), 8, "64 values reach all 8 shards");
        assert_eq!(Shard::route(&queue, 1, None, &id("a")).tag(), "q/0");
        assert_eq!(
            (fnv1a(b"a"), fnv1a(b"foobar")),
            (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8),
            "published vectors"
        );
    }
}
