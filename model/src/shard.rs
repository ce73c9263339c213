//! Queue shards, and the one function that chooses a shard for a message (Q17).

use crate::config::QueueConfig;
use crate::fencing;
use crate::filter::IndexKeys;
use crate::limits::{INDEXES_MAX, SHARD_NUMBER_MAX, UNDECLARED_INDEX_ENTRIES_MAX};
use crate::message::NewMessage;
use crate::names::{MessageId, QueueName};
use crate::refusal::Refusal;
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

    /// What each of its shards has of a bound of the whole queue (Q17); no bound (0) stays none.
    pub fn share(self, bound: u64) -> u64 {
        bound.div_ceil(u64::from(self.count.max(1)))
    }

    /// Whether a filter may create one more undeclared index in one of its shards that has so many of them, and so many messages in
    /// all states (docs/decisions/0267).
    pub fn admits_undeclared_index(self, undeclared: usize, messages: u64) -> bool {
        let entries = messages.saturating_mul(undeclared as u64 + 1);
        undeclared == 0 || entries <= self.share(UNDECLARED_INDEX_ENTRIES_MAX)
    }
}

/// The shards of a queue whose number of shards was changed (docs/decisions/0268).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Rises with each change, so that of two states the later one is known. No shard takes an earlier one over.
    pub version: u32,
    /// Those that take new messages.
    pub current: Generation,
    /// Those of before the change, which is under way as long as there are some: they are *closed*, which means that they take no
    /// message that they do not have, except one of an exclusivity value that they keep (docs/decisions/0270). The oldest first; at
    /// most one for now.
    pub old: Vec<Generation>,
}

impl Spread {
    /// After a change to this number of shards, by the configuration and the spread of before. The new shards have numbers that
    /// the queue never had. So tokens of later shards are higher, and no shard is mistaken for an earlier one.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] "shards" (Q17): a change is under way, or the numbers have run out.
    pub fn changed(config: &QueueConfig, before: Option<&Spread>, shards: u16) -> Result<Spread, Refusal> {
        let refused = |why: String| Err(Refusal::invalid("shards", why));
        let (version, current) = match before {
            None => (0, Generation { first: 0, count: config.shards }),
            Some(spread) => (spread.version, spread.current),
        };
        let draining: u16 = before.map_or(0, Spread::draining);
        if draining > 0 {
            return refused(format!(
                "is being changed to {} already: {draining} earlier shards are not empty yet; call again when GetQueue says \
                 shards_draining 0. They also keep ended messages until their retention is over: a purge removes those",
                config.shards
            ));
        }
        let first = current.first + current.count;
        if first + shards - 1 > SHARD_NUMBER_MAX {
            return refused(format!(
                "was changed too often: no numbers are left for {shards} more shards; create another queue"
            ));
        }
        let old = vec![current];
        Ok(Spread { version: version + 1, current: Generation { first, count: shards }, old })
    }

    /// When the shards of the oldest generation are empty: without them. Without any it is the same.
    #[must_use]
    pub fn finished(&self) -> Spread {
        let old: Vec<Generation> = self.old.iter().skip(1).copied().collect();
        Spread { version: self.version + u32::from(!self.old.is_empty()), current: self.current, old }
    }

    /// Whether the shard of this number is closed.
    pub fn closes(&self, number: u16) -> bool {
        !self.current.has(number)
    }

    /// How many shards are closed and not removed yet. The first one counts only while it is one of an earlier generation.
    pub fn draining(&self) -> u16 {
        self.old.iter().map(|generation| generation.count).sum()
    }
}

impl QueueConfig {
    /// The index that closed shards need, if there are such, and that nothing drops (docs/decisions/0270).
    pub fn needed_index(&self, spread: Option<&Spread>) -> Option<IndexKeys> {
        self.queue_type.index_of_values().filter(|_| spread.is_some_and(|spread| spread.draining() > 0))
    }

    /// Whether the declared indexes leave room for the one that closed shards need.
    pub fn has_room_for_indexes(&self, spread: Option<&Spread>) -> bool {
        let more = self.needed_index(spread).filter(|keys| !self.indexes.contains(keys));
        self.indexes.len() + usize::from(more.is_some()) <= INDEXES_MAX
    }
}

/// How the messages of a queue are spread over its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    current: Generation,
    /// Closed ones, the oldest first.
    old: Vec<Generation>,
    exclusivity_key: Option<String>,
}

impl Layout {
    /// Of a queue with this configuration, whose number of shards was changed so; `None`: never.
    pub fn of(config: &QueueConfig, spread: Option<&Spread>) -> Layout {
        let (current, old) = match spread {
            None => (Generation { first: 0, count: config.shards }, Vec::new()),
            Some(spread) => (spread.current, spread.old.clone()),
        };
        let mut layout = Layout { current, old, exclusivity_key: None };
        // Most queues have one shard, which no key chooses.
        if !layout.is_plain() {
            layout.exclusivity_key = config.queue_type.key().map(str::to_owned);
        }
        layout
    }

    /// Of a queue with one shard, the first.
    pub fn plain() -> Layout {
        Layout { current: Generation { first: 0, count: 1 }, old: Vec::new(), exclusivity_key: None }
    }

    /// Whether the first shard is the only one.
    pub fn is_plain(&self) -> bool {
        self.current.first == 0 && self.current.count == 1 && self.old.is_empty()
    }

    /// The shards that take new messages.
    pub fn current(&self) -> Generation {
        self.current
    }

    /// The shards of before a change that is under way, the oldest first.
    pub fn old(&self) -> &[Generation] {
        &self.old
    }

    /// All of them, the current one last.
    pub fn generations(&self) -> impl Iterator<Item = Generation> {
        self.old.iter().copied().chain(std::iter::once(self.current))
    }

    /// Those that the shard of this number is one of; `None`: there is no such shard, or it is the first, which stays for the
    /// configuration alone.
    pub fn generation_of(&self, number: u16) -> Option<Generation> {
        self.generations().find(|generation| generation.has(number))
    }

    /// The numbers of all shards, ascending, the first one (0) among them.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        let first = self.generation_of(0).is_none().then_some(0);
        let old = self.old.clone().into_iter().flat_map(Generation::numbers);
        first.into_iter().chain(old).chain(self.current.numbers())
    }

    /// All shards of this queue, the first one first.
    pub fn shards(&self, queue: &QueueName) -> impl Iterator<Item = Shard> + use<> {
        let first = Shard::first(queue);
        self.numbers().map(move |number| first.sibling(number))
    }

    /// Those that the shard of this number is one of; if it is of none, the current ones.
    pub fn generation_or_current(&self, number: u16) -> Generation {
        self.generation_of(number).unwrap_or(self.current)
    }

    /// Whether the queue has a shard of this number.
    pub fn has(&self, number: u16) -> bool {
        number == 0 || self.generation_of(number).is_some()
    }

    /// The metadata key whose value chooses the shard of a message; `None`: its id does.
    pub fn exclusivity_key(&self) -> Option<&str> {
        self.exclusivity_key.as_deref()
    }

    /// The number of the shard of a generation that takes this message. One that lacks the key of an exclusive queue is refused by
    /// every shard.
    pub fn number_of(&self, generation: Generation, message: &NewMessage) -> u16 {
        let value = self.exclusivity_key.as_ref().map(|key| message.metadata.get(key).unwrap_or_default());
        generation.number_of(value, &message.id)
    }
}

impl Shard {
    /// The shard with the queue's configuration; the only shard of most queues.
    pub fn first(queue: &QueueName) -> Self {
        Shard { queue: queue.clone(), number: 0 }
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
    fn s1_undeclared_indexes_of_a_large_queue_are_few() {
        let admitted = |messages: u64, count: u16| {
            let shards = Generation { first: 0, count };
            (0..INDEXES_MAX).take_while(|undeclared| shards.admits_undeclared_index(*undeclared, messages)).count()
        };
        for (messages, indexes) in [(0, 16), (37_500, 16), (200_000, 3), (300_000, 2), (300_001, 1), (u64::MAX, 1)] {
            assert_eq!(admitted(messages, 1), indexes, "{messages} messages");
        }
        // All shards of a queue together have as many entries as one.
        assert_eq!(admitted(50_000, 4), 3);
    }

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

    fn simple(shards: u16) -> QueueConfig {
        QueueConfig { shards, ..QueueConfig::default() }
    }

    #[test]
    fn q17_each_change_takes_new_numbers_and_the_first_shard_stays() {
        let numbers = |spread: Option<&Spread>| Layout::of(&simple(1), spread).numbers().collect::<Vec<_>>();
        assert_eq!((numbers(None), Layout::of(&simple(1), None).is_plain()), (vec![0], true));
        let to_three = Spread::changed(&simple(1), None, 3).unwrap();
        assert_eq!((numbers(Some(&to_three)), to_three.draining()), (vec![0, 1, 2, 3], 1));
        assert_eq!([0, 1, 3].map(|number| to_three.closes(number)), [true, false, false]);
        let drained = to_three.finished();
        assert_eq!((numbers(Some(&drained)), drained.draining()), (vec![0, 1, 2, 3], 0));
        assert_eq!((drained.version, drained.finished().version), (2, 2));
        let to_two = Spread::changed(&simple(3), Some(&drained), 2).unwrap();
        assert_eq!((numbers(Some(&to_two)), to_two.draining()), (vec![0, 1, 2, 3, 4, 5], 3));
        let layout = Layout::of(&simple(2), Some(&to_two.finished()));
        assert_eq!(layout.numbers().collect::<Vec<_>>(), [0, 4, 5]);
        assert_eq!([0, 3, 4, 6].map(|number| layout.has(number)), [true, false, true, false]);
        assert_eq!((layout.generation_of(0), layout.is_plain()), (None, false));
    }

    #[test]
    fn q17_a_change_that_cannot_be_made_says_what_to_do() {
        let draining = Spread::changed(&simple(4), None, 8).unwrap();
        let mut worn = draining.finished();
        worn.current = Generation { first: 1_000, count: 8 };
        assert!(Spread::changed(&simple(8), Some(&worn), 16).is_ok(), "1008 to 1023");
        let cases = [
            (Spread::changed(&simple(8), Some(&draining), 3), "call again when GetQueue says"),
            (Spread::changed(&simple(8), Some(&worn), 17), "create another queue"),
        ];
        for (refused, what) in cases {
            assert!(
                matches!(&refused, Err(Refusal::Invalid { field: "shards", why }) if why.contains(what)),
                "{refused:?} {what}"
            );
        }
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
