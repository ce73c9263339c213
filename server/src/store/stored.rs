//! The configuration of a shard as Redis stores it.

use serde::{Deserialize, Serialize};
use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::{IndexKeys, Layout, QueueConfig, Refusal, Spread};

/// The last use of an index is recorded at most this often, because each record is a change of the configuration.
const USE_REFRESH_MS: u64 = 600_000;
/// The numbers that a revision leaves out at most in a new timeline. They end after 8,000 gaps of the average size.
const REVISION_GAP_MAX: u64 = 1 << 20;
/// One number is left out for each period of this length. Changes follow each other more slowly: each waits for the previous one.
const REVISION_GAP_US: u64 = 2_048;

/// The configuration as Redis stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(alias = "sharded_config", alias = "spread_config")]
    pub(super) config: QueueConfig,
    /// The revision that callers see. The revision of the scripts also rises with changes of indexes.
    pub(super) revision: u32,
    /// At most [`INDEXES_MAX`]; the slot names the keys of an index.
    pub(super) indexes: Vec<StoredIndex>,
    /// Where its errored messages are.
    #[serde(default)]
    pub(super) errored_in: ErroredIn,
    /// The start of the timeline of the last change, see [`ShardState`](tallystone_lua::record::ShardState).
    #[serde(default)]
    pub(super) timeline_begin: u64,
    /// How the shard belongs to the others of its queue; `None`: it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<Member>,
    /// How the number of shards was changed; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) spread: Option<Spread>,
}

/// A shard as one of several of its queue (docs/decisions/0181). The first shard has the configuration of the queue, the others
/// have copies of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Distinguishes the queue from earlier and later ones of its name: hexadecimal, drawn at its creation, or the time of that, where it
    /// was created with one shard.
    pub(super) queue_id: String,
    /// Rises when a deletion was begun and the queue stays: what was deleted in an earlier epoch is created again.
    pub(super) epoch: u32,
    /// In a copy: the revision of the queue that it is a copy of. In the first shard 0.
    pub(super) copied_revision: u32,
    /// In the first shard: when the deletion of the queue began (Unix ms); 0: it is not being deleted.
    pub(super) deleting_since_ms: u64,
}

impl Member {
    /// That of the first shard of a queue.
    fn first_of(queue_id: String) -> Member {
        Member { queue_id, epoch: 1, copied_revision: 0, deleting_since_ms: 0 }
    }

    /// That of the first shard of a queue that was created with one shard at this time. It is not drawn: a first shard that has lost
    /// the change of its number of shards still knows the others.
    fn of_one(created_at_ms: u64) -> Member {
        Member::first_of(format!("{created_at_ms:016x}"))
    }

    /// Whether a copy misses changes that this member of the same queue has.
    pub(super) fn is_behind(&self, wanted: &Member) -> bool {
        self.copied_revision <= wanted.copied_revision && self.epoch <= wanted.epoch && self != wanted
    }

    /// As the scripts take it.
    pub(super) fn mark(&self) -> String {
        format!("{}:{}", self.queue_id, self.epoch)
    }
}

/// Where the errored messages of a queue are (Q22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErroredIn {
    /// Version 0.1 wrote this configuration: among the other terminal messages, except those that ended since.
    #[default]
    Done,
    /// The same, but this version wrote the configuration.
    DoneOrSet,
    /// In a separate set.
    Set,
}

/// One filter index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredIndex {
    pub(super) slot: u8,
    pub(super) keys: IndexKeys,
    /// It does not cover all older messages yet.
    pub(super) building: bool,
    /// The revision that was current before its build began: a build recognizes its index by it. `None`: the index was complete
    /// from the beginning, or an earlier version began the build.
    #[serde(default)]
    pub(super) begun_in: Option<u32>,
    /// When a filter last used it, roughly. 0: no filter used it before it was declared. Declared indexes do not age.
    pub(super) used_at_ms: u64,
}

impl Stored {
    /// The configuration of a new queue. Its declared indexes are complete, because it has no messages.
    pub(super) fn new(config: QueueConfig) -> Self {
        let errored_in = ErroredIn::Set;
        let member = (config.shards > 1).then(|| Member::first_of(format!("{:016x}", rand::random::<u64>())));
        let (indexes, timeline_begin) = (Vec::new(), 0);
        let mut stored = Stored { config, revision: 1, indexes, errored_in, timeline_begin, member, spread: None };
        for keys in stored.config.indexes.clone() {
            stored.add_index(keys, false, 0);
        }
        stored
    }

    /// The configuration of another new shard of the queue with this first one.
    pub(super) fn copy_of(first: &Stored) -> Stored {
        Stored { member: first.copied_member(), spread: first.spread.clone(), ..Stored::new(first.config.clone()) }
    }

    /// How the queue is spread over its shards.
    pub(super) fn layout(&self) -> Layout {
        Layout::of(&self.config, self.spread.as_ref())
    }

    /// The version of its spread; 0: the number of shards was never changed.
    pub(super) fn spread_version(&self) -> u32 {
        self.spread.as_ref().map_or(0, |spread| spread.version)
    }

    /// Takes over how the number of shards was changed, unless what it has is as late: so no closed shard opens again. `created_at_ms`:
    /// when the queue was created.
    pub(super) fn take_spread(&mut self, spread: &Spread, created_at_ms: u64) {
        if spread.version > self.spread_version() {
            self.member.get_or_insert_with(|| Member::of_one(created_at_ms));
            self.config.shards = spread.current.count;
            self.spread = Some(spread.clone());
        }
    }

    /// Whether the shard of this number can take over this spread. One that it closes must have the index by which it knows what it keeps
    /// (docs/decisions/0270); one that is closed already has it, or is empty.
    pub(super) fn admits(&self, spread: &Spread, number: u16) -> bool {
        let is_closed = self.spread.as_ref().is_some_and(|own| own.closes(number));
        let is_built = |keys: IndexKeys| self.indexes.iter().any(|index| index.keys == keys && !index.building);
        is_closed || !spread.closes(number) || self.config.queue_type.index_of_values().is_none_or(is_built)
    }

    /// Whether this is the index by which closed shards know which values they keep. No server drops it.
    pub(super) fn is_needed(&self, index: &StoredIndex) -> bool {
        self.config.needed_index(self.spread.as_ref()).as_ref() == Some(&index.keys)
    }

    /// Whether a member with this id is of the queue of this first shard, which was created at that time.
    pub(super) fn is_of(&self, queue_id: &str, created_at_ms: u64) -> bool {
        match &self.member {
            Some(member) => member.queue_id == queue_id,
            None => Member::of_one(created_at_ms).queue_id == queue_id,
        }
    }

    /// When its deletion began, in the first shard (Unix ms).
    pub(super) fn deleting_since_ms(&self) -> Option<u64> {
        self.member.as_ref().map(|member| member.deleting_since_ms).filter(|since_ms| *since_ms > 0)
    }

    /// What a copy of this first shard has.
    pub(super) fn copied_member(&self) -> Option<Member> {
        let copied =
            |member: &Member| Member { copied_revision: self.revision, deleting_since_ms: 0, ..member.clone() };
        self.member.as_ref().map(copied)
    }

    /// Takes over another configuration of the queue. `false`: the declared indexes do not fit, together with the one that closed shards
    /// need. All shards of the queue decide alike, also those that do not need it: none refuses a configuration that the first one took
    /// over.
    pub(super) fn configure(&mut self, config: QueueConfig) -> bool {
        if !config.has_room_for_indexes(self.spread.as_ref()) {
            return false;
        }
        // An index that is no longer declared is dropped, unless filters used it before it was declared.
        let needed = config.needed_index(self.spread.as_ref());
        let is_wanted = |keys: &IndexKeys| config.indexes.contains(keys) || needed.as_ref() == Some(keys);
        self.indexes.retain(|index| index.used_at_ms > 0 || is_wanted(&index.keys));
        self.config = config;
        self.config.indexes.clone().into_iter().all(|keys| self.declare_index(keys))
    }

    /// As Redis keeps it. A server of version 0.1 would send every message of a queue with several shards to the first one, and one
    /// that knows no change of their number would send messages to shards that are closed: neither can read such a configuration.
    pub(super) fn write(&self) -> Result<Vec<u8>, Refusal> {
        let internal = |error: serde_json::Error| Refusal::Internal(error.to_string());
        if self.member.is_none() {
            return serde_json::to_vec(self).map_err(internal);
        }
        let mut json = serde_json::to_value(self).map_err(internal)?;
        if let Some(fields) = json.as_object_mut()
            && let Some(config) = fields.remove("config")
        {
            let name = if self.spread.is_some() { "spread_config" } else { "sharded_config" };
            fields.insert(name.to_owned(), config);
        }
        serde_json::to_vec(&json).map_err(internal)
    }

    /// Reads a configuration. In one of version 0.1 errored messages stay at least as long as they did there.
    pub(super) fn read(stored: &[u8]) -> Result<Stored, serde_json::Error> {
        let mut stored: Stored = serde_json::from_slice(stored)?;
        if stored.errored_in == ErroredIn::Done {
            stored.errored_in = ErroredIn::DoneOrSet;
            let config = &mut stored.config;
            config.errored_retention_ms = config.errored_retention_ms.max(config.terminal_retention_ms);
        }
        Ok(stored)
    }

    /// The revision of a change: no earlier change had it. Changes that Redis has lost may have had the next numbers, so the
    /// first in a new timeline leaves a gap: the time from the start of the timeline of the last change to that of the new
    /// one, in steps. So the gap is larger than what was lost, and of two timelines that continue the same one, the later
    /// leaves the larger gap (X1). It stays below a bound, so after half an hour a gap may have a size that it had before.
    pub(super) fn revise(&mut self, timeline_begin: u64, created_at_ms: u64) {
        let last_begin = self.timeline_begin.max(created_at_ms * 1_000);
        let gap = timeline_begin.saturating_sub(last_begin) / REVISION_GAP_US % REVISION_GAP_MAX;
        self.revision = self.revision.saturating_add(1 + gap as u32);
        self.timeline_begin = timeline_begin;
    }

    /// Whether the index exists and is recorded as in use.
    pub(super) fn has_index(&self, keys: &IndexKeys, now_ms: u64) -> bool {
        let is_in_use = |index: &StoredIndex| {
            index.used_at_ms + USE_REFRESH_MS >= now_ms || self.config.indexes.contains(&index.keys)
        };
        self.indexes.iter().any(|index| index.keys == *keys && is_in_use(index))
    }

    /// Creates the index in the shard of this number, or records its use. `messages`: all that the shard has. `false`: no slot is free,
    /// or so many messages admit no further undeclared index.
    pub(super) fn use_index(&mut self, keys: &IndexKeys, now_ms: u64, number: u16, messages: u64) -> bool {
        if self.has_index(keys, now_ms) {
            return true;
        }
        match self.indexes.iter_mut().find(|index| index.keys == *keys) {
            Some(index) => index.used_at_ms = now_ms,
            None => {
                let generation = self.layout().generation_or_current(number);
                let is_admitted = generation.admits_undeclared_index(self.undeclared_count(), messages);
                return is_admitted && self.add_index(keys.clone(), true, now_ms);
            }
        }
        true
    }

    /// The indexes that filters have created, with their places.
    fn undeclared(&self) -> impl Iterator<Item = (usize, &StoredIndex)> {
        self.indexes.iter().enumerate().filter(move |(_, index)| !self.config.indexes.contains(&index.keys))
    }

    /// How many of them count against the bound of their entries.
    pub(super) fn undeclared_count(&self) -> usize {
        self.undeclared().filter(|(_, index)| !self.is_needed(index)).count()
    }

    /// Adds an index that a shard needs before it is closed, or records its use: it is not dropped while the operator tries again. `false`:
    /// no slot is free, and all are of declared indexes.
    pub(super) fn need_index(&mut self, keys: &IndexKeys, now_ms: u64) -> bool {
        if !self.has_index(keys, now_ms)
            && let Some(index) = self.indexes.iter_mut().find(|index| index.keys == *keys)
        {
            index.used_at_ms = now_ms;
        }
        self.place_index(keys, now_ms)
    }

    /// Adds a declared index, unless it exists. `false`: all slots are of declared indexes.
    pub(super) fn declare_index(&mut self, keys: IndexKeys) -> bool {
        self.place_index(&keys, 0)
    }

    /// Adds an index, unless it exists. If no slot is free, it takes that of the index without declaration which was not used for the
    /// longest time. `false`: all are declared.
    fn place_index(&mut self, keys: &IndexKeys, used_at_ms: u64) -> bool {
        while !self.add_index(keys.clone(), true, used_at_ms) {
            let dispensable = self.undeclared().filter(|(_, index)| !self.is_needed(index));
            let oldest = dispensable.min_by_key(|(_, index)| index.used_at_ms);
            let Some((at, _)) = oldest else { return false };
            self.indexes.remove(at);
        }
        true
    }

    /// Adds the index in a free slot, unless it exists. `false`: no slot is free.
    pub(super) fn add_index(&mut self, keys: IndexKeys, building: bool, now_ms: u64) -> bool {
        if self.indexes.iter().any(|index| index.keys == keys) {
            return true;
        }
        let free = (0..INDEXES_MAX as u8).find(|slot| self.indexes.iter().all(|index| index.slot != *slot));
        let Some(slot) = free else { return false };
        self.indexes.push(StoredIndex { slot, keys, building, begun_in: None, used_at_ms: now_ms });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tallystone_model::QueueType;
    use tallystone_model::limits::UNDECLARED_INDEX_ENTRIES_MAX;

    const CREATED_MS: u64 = 1_780_000_000_000;

    #[test]
    fn s1_a_filter_creates_no_index_that_would_take_too_much_memory() {
        let keys = |name: &str| IndexKeys::parse([name.to_owned()]).unwrap();
        let mut stored = Stored::new(QueueConfig { indexes: vec![keys("declared")], ..QueueConfig::default() });
        let few = UNDECLARED_INDEX_ENTRIES_MAX / 3;
        for (name, messages, admitted) in [
            ("a", u64::MAX, true),
            ("b", few, true),
            ("c", few + 1, false),
            ("c", few, true),
            ("d", few, false),
            // What is there stays as the queue grows.
            ("b", u64::MAX, true),
            ("declared", u64::MAX, true),
        ] {
            let (before, now_ms) = (stored.clone(), CREATED_MS + USE_REFRESH_MS);
            assert_eq!(stored.use_index(&keys(name), now_ms, 0, messages), admitted, "{name}, {messages} messages");
            assert!(admitted || stored == before);
        }
        // An index that is declared makes room for another.
        stored.config.indexes.push(keys("a"));
        assert!(stored.use_index(&keys("d"), CREATED_MS, 0, few));
    }

    #[test]
    fn q17_a_server_that_knows_nothing_of_shards_cannot_read_the_configuration_of_several() {
        for (shards, changed, field) in [
            (1, None, "config"),
            (4, None, "sharded_config"),
            (1, Some(4), "spread_config"),
            (4, Some(1), "spread_config"),
        ] {
            let mut stored = Stored::new(QueueConfig { shards, ..QueueConfig::default() });
            if let Some(changed) = changed {
                let spread = Spread::changed(&stored.config, None, changed).unwrap();
                stored.take_spread(&spread, CREATED_MS);
                assert_eq!((stored.config.shards, stored.layout().current().first), (changed, shards));
            }
            let json = stored.write().unwrap();
            assert_eq!(Stored::read(&json).unwrap(), stored);
            let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&json).unwrap();
            let configs: Vec<&String> = fields.keys().filter(|name| name.ends_with("config")).collect();
            assert_eq!(configs, [field]);
        }
    }

    #[test]
    fn q17_what_was_never_changed_is_written_as_before() {
        let json = |shards| {
            let mut stored = Stored::new(QueueConfig { shards, ..QueueConfig::default() });
            stored.member.iter_mut().for_each(|member| member.queue_id = "7".to_owned());
            String::from_utf8(stored.write().unwrap()).unwrap()
        };
        let ends = [r#","revision":1,"indexes":[],"errored_in":"set","timeline_begin":0}"#, r#","timeline_begin":0}"#];
        for (shards, end) in [1, 4].into_iter().zip(ends) {
            let json = json(shards);
            assert!(json.ends_with(end) && !json.contains("spread"), "{json}");
        }
    }

    #[test]
    fn q17_nothing_takes_the_place_of_the_index_that_closed_shards_need() {
        let keys = |name: &str| IndexKeys::parse([name.to_owned()]).unwrap();
        let has = |stored: &Stored, name: &str| stored.indexes.iter().any(|index| index.keys == keys(name));
        let queue_type = QueueType::Exclusive { key: "k".to_owned() };
        let mut stored = Stored::new(QueueConfig { queue_type, ..QueueConfig::default() });
        let spread = Spread::changed(&stored.config, None, 4).unwrap();
        for n in 0..INDEXES_MAX as u64 {
            assert!(stored.add_index(keys(&format!("filter{n}")), false, CREATED_MS + n));
        }
        // It takes the place of the one that was unused for the longest time.
        assert!(!stored.admits(&spread, 0) && stored.need_index(&keys("k"), CREATED_MS));
        assert!(!has(&stored, "filter0") && has(&stored, "filter1"));
        assert!(!stored.admits(&spread, 0), "it is being built");
        // Called again, it stays in use.
        let later_ms = CREATED_MS + USE_REFRESH_MS + 1;
        assert!(stored.need_index(&keys("k"), later_ms));
        let needed = stored.indexes.iter_mut().find(|index| index.keys == keys("k")).unwrap();
        assert_eq!(needed.used_at_ms, later_ms);
        needed.building = false;
        assert!(stored.admits(&spread, 0));
        stored.take_spread(&spread, CREATED_MS);
        let declares = |stored: &Stored, count: usize| {
            let indexes = (0..count).map(|n| keys(&format!("declared{n}"))).collect();
            QueueConfig { indexes, ..stored.config.clone() }
        };
        let before = stored.clone();
        assert!(!stored.configure(declares(&before, INDEXES_MAX)) && stored == before);
        assert!(stored.configure(declares(&before, INDEXES_MAX - 1)) && has(&stored, "k"));
        assert!(stored.configure(declares(&before, 0)) && has(&stored, "k"));
        // A copy that was created closed needs none, and refuses no more and no less.
        let mut copy = Stored::copy_of(&stored);
        assert!(copy.admits(&spread, 0) && !copy.configure(declares(&before, INDEXES_MAX)));
        stored.spread = Some(spread.finished());
        assert!(stored.configure(declares(&before, INDEXES_MAX)) && !has(&stored, "k"));
    }

    #[test]
    fn q17_an_earlier_spread_is_never_taken_over() {
        let mut stored = Stored::new(QueueConfig::default());
        let first = Spread::changed(&stored.config, None, 4).unwrap();
        stored.take_spread(&first, CREATED_MS);
        let member = stored.member.clone().unwrap();
        assert_eq!((member.queue_id.as_str(), member.epoch), ("0000019e70448800", 1));
        assert!(Stored::new(QueueConfig::default()).is_of(&member.queue_id, CREATED_MS), "as it was before");
        let second = Spread { version: 7, ..first.finished() };
        stored.take_spread(&second, CREATED_MS);
        for earlier in [&first, &first.finished(), &Spread { current: first.current, ..second.clone() }] {
            stored.take_spread(earlier, CREATED_MS);
            assert_eq!(stored.spread.as_ref(), Some(&second));
        }
    }

    #[test]
    fn x1_revisions_of_lost_changes_are_not_given_again() {
        let kept = Stored::new(QueueConfig::default());
        let mut given = HashSet::from([kept.revision]);
        // All changes in each timeline are lost. The first one began with the queue, the others so many microseconds later.
        let later = [30_000, 60_000, 1_884_161, 300_000_000, 1_800_000_000].map(|us| CREATED_MS * 1_000 + us);
        for timeline_begin in [0].into_iter().chain(later) {
            let mut stored = kept.clone();
            for _ in 0..10 {
                stored.revise(timeline_begin, CREATED_MS);
                assert!(given.insert(stored.revision), "{timeline_begin}: {} again", stored.revision);
            }
        }
    }
}
