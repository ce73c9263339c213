//! The scripts of the counters, their keys and their records. A namespace's event log and checkpoints are spread over
//! shards; the keys of a shard share one hash tag.

use crate::answer::answers;
use crate::keys::Keyspace;
use crate::script::{parts, scripts};
use std::fmt::Write;
use std::ops::Range;

/// The names of a shard's keys, in the order of KEYS. Lua knows them as `K_STATE`, `K_PENDING`, …
pub const NAMES: [&str; 4] = [
    "state",   // string: LOG_STATE_LAYOUT
    "pending", // hash: counter → what no rollup has settled (counter/lib/pending.lua)
    "dirty",   // sorted set: counters that wait for a rollup, scored by since when (Unix ms; counter/due.lua)
    "layout",  // string: how many slots a window has, from which window on (counter/lib/adapt_slots.lua)
];
/// Set: buckets of time that retention has kept, because an event in them waits for its rollup. Lua knows it as `K_KEPT`.
pub const KEPT: &str = "kept";
/// Sorted set, in a home shard: deleted counters, scored by the time up to which their events are deleted (Unix ms). Lua
/// knows it as `K_DELETED`.
pub const DELETED: &str = "deleted";
/// Hash, in a home shard: counter → its recounts, as JSON (N12). Lua knows it as `K_RECOUNTS`.
pub const RECOUNTS: &str = "recounts";
/// Stream, in a home shard: the thresholds that counts have passed (N16; `counter/lib/crossings.lua`). Lua knows it as
/// `K_CROSSINGS`.
pub const CROSSINGS: &str = "crossings";
/// The number of entries that stay in the stream; up to a hundred more stay, because Redis removes whole blocks.
pub const CROSSINGS_MAX: u64 = 100_000;
/// String: how far the archive has dropped events from the log, and the ticket of its archiver (`counter/archive.lua`). Lua
/// knows it as `K_ARCHIVE`.
pub const ARCHIVE: &str = "archive";
/// Sorted set: the counters with settled events that are not in the archive yet, scored by the time to which they are settled
/// (Unix ms). Lua knows it as `K_SETTLED_NAMES`.
pub const SETTLED_NAMES: &str = "names";
/// Sorted set, in a home shard of a namespace with regions: the counters that need attention (N12; `counter/lib/regions.lua`).
/// Lua knows it as `K_BEHIND`.
pub const BEHIND: &str = "behind";
/// Hash, in a home shard: what other regions have published (N12; `counter/lib/regions.lua`). Lua knows it as `K_REGIONS`.
pub const REGIONS: &str = "regions";
/// Hash: up to where the topics of other regions are merged, and for which namespaces (N12; `counter/merged.lua`). It is in the
/// first partition.
pub const REGION_POSITIONS: &str = "tc:regions";
/// String: the term of the process that publishes and merges (N12; `counter/region_term.lua`). It is in the first partition.
pub const REGION_LEASE: &str = "tc:regions:lease";
/// The registry of namespaces. It is in the first partition.
pub const NAMESPACES: &str = "tc:namespaces";
/// How many partitions the counters have; only where there are several. It is in no partition.
pub const PARTITIONS: &str = "tc:partitions";
/// A field of the registry: the incarnation of the next namespace. No name has a control character. With the name of a namespace behind it:
/// the origin of that one (`counter/lib/registry.lua`).
pub const INCARNATION_FIELD: char = '\u{1}';
/// The fields of deleted namespaces begin with this: the character, the name, ':' and the incarnation.
pub const DELETED_FIELD: char = '\u{2}';
/// The revision that the shards of a deleted namespace follow. No server has it.
pub const DELETED_REVISION: u64 = (1 << 48) - 1;
/// The longest time by which the first checkpoint of a counter may be behind the store's clock: the longest accept limit,
/// and a minute for the rollup.
pub const FIRST_AGE_MS_MAX: u64 = ACCEPT_MS_MAX + 60_000;
/// The length of a time window of the event log: sums are kept by window, and a seal falls on a window's bound.
pub const WINDOW_MS: u64 = 500;
/// The longest accept limit.
pub const ACCEPT_MS_MAX: u64 = 3_600_000;
/// The factor by which each hold of a counter that waits for its rollup is longer than the previous one.
pub const HOLD_GROWTH: u64 = 4;
/// The longest hold, unless the first one is longer. A job that the queue has lost is made again after it.
pub const HOLD_MAX_MS: u64 = 900_000;
/// The least number of slots in a window: few enough to be full at a low rate, and enough for a burst.
pub const SLOTS_MIN: u64 = 16;
/// The largest number of slots in a window.
pub const SLOTS_MAX: u64 = 65_536;
/// The state of a shard of the event log; `counter/lib/shard.lua` names its fields.
pub const LOG_STATE_LAYOUT: &str = ">I6I6I6I6I5I4I4I4I4I5I6I5";
/// The bytes of its first field: the revision that the shard follows.
pub const STATE_REVISION: Range<usize> = 0..6;
/// The bytes of its fourth field: the latest time that a tick has shown.
pub const STATE_SHOWN: Range<usize> = 18..24;
/// The bytes of its second field: no event before this time is appended.
pub const STATE_SEALED_TO: Range<usize> = 6..12;
/// The bytes of its third field: no event before this time is appended, because one was refused.
pub const STATE_OPEN: Range<usize> = 12..18;
/// The bytes of its twelfth field: no event is in a window after this one.
pub const STATE_LATEST: Range<usize> = 56..61;
/// The bytes of its eleventh field: records before this time may be dropped.
pub const STATE_PRUNED: Range<usize> = 50..56;
/// `closed` in a pending record: adds above zero are refused.
pub const CLOSED_UP: u8 = 1;
/// `closed` in a pending record: adds below zero are refused.
pub const CLOSED_DOWN: u8 = 2;
/// A flag in the same byte: the entries of older windows are in a separate field, so that an add need not write them
/// again.
pub const HAS_OLDER: u8 = 4;
/// The name of that field is this character and the counter's name. No name has a control character.
pub const OLDER_FIELD: char = '\u{1}';
/// The head of a pending record, which is all of a record without windows: `counter/lib/pending.lua` names its fields.
pub const PENDING_HEAD_LAYOUT: &str = ">I6BI6i4I4";
/// Its length.
pub const PENDING_HEAD_BYTES: usize = 21;
/// A checkpoint: `counter/lib/home.lua` names its fields.
pub const CHECKPOINT_LAYOUT: &str = ">i4I4I6I6I6I7";
/// Its length. The checkpoint of a deleted counter has one byte more.
pub const CHECKPOINT_BYTES: usize = 33;
/// That byte.
pub const DELETED_BYTE: u8 = 1;
/// The number of additional bytes in the checkpoint of a counter that was recounted: its epoch (`counter/lib/home.lua`).
pub const EPOCH_BYTES: usize = 12;
/// The number of further bytes in the checkpoint of a counter that was cleared, in a namespace with regions.
pub const CLEARED_BYTES: usize = 6;
/// What a region has published of a counter: `counter/lib/regions.lua` names its fields.
pub const REGION_RECORD_LAYOUT: &str = ">I6I6I4I6I6i4I4";
/// Its length.
pub const REGION_RECORD_BYTES: usize = 36;

answers! {
    /// The code of a script's reply, of the whole call or of one item.
    CounterAnswer {
        /// Done.
        Ok = "OK",
        /// There is no such shard yet.
        NoShard = "NO_SHARD",
        /// The shard follows another revision of the namespace.
        Stale = "STALE",
        /// Item: it has counted already.
        Duplicate = "DUPLICATE",
        /// Item: the token has counted with something else.
        Conflict = "CONFLICT",
        /// Item: its time is before the accept limit, or sealed.
        TooOld = "TOO_OLD",
        /// Item: its time is too far ahead of the store's clock.
        TooEarly = "TOO_EARLY",
        /// Item: the counter's range cannot hold it.
        Overflow = "OVERFLOW",
        /// Item: so old that tokens are no longer looked up.
        Expired = "EXPIRED",
        /// Item: it is so old that only the archive knows whether it has counted.
        Archived = "ARCHIVED",
        /// Item: another rollup has committed first, or a later lease has written.
        Lost = "LOST",
        /// The layout of slots has changed since the caller read it.
        LayoutChanged = "LAYOUT_CHANGED",
        /// Item: it happens now, and its fields belong to other windows than the current one, or a clear is at its time.
        Restamp = "RESTAMP",
        /// Item: the count would pass the bound that the add names.
        BoundReached = "BOUND_REACHED",
    }
}

const PARTS: &[(&str, &str)] = parts!["counter/lib":
    "shard", "pending", "slots", "counts", "bounds",
    "count_event", "adapt_slots", "write_slots", "write_counts", "home", "crossings", "regions", "registry"];

scripts! {
    /// A script: one verb of the counters' stores.
    CounterScript in "counter", from PARTS, behind prelude();
    /// N1.
    PutNamespace = "put_namespace",
    /// N1.
    Configure = "configure",
    /// N3, N5, N6, N9.
    Append = "append",
    /// N7.
    Seal = "seal",
    /// N8, N9.
    Settle = "settle",
    /// N2.
    Close = "close",
    /// N9.
    Due = "due",
    /// N9.
    Defer = "defer",
    /// N11.
    Touch = "touch",
    /// N7.
    Tick = "tick",
    /// N12.
    Prune = "prune",
    /// N15.
    Archive = "archive",
    /// N15.
    Archived = "archived",
    /// N15.
    Drop = "drop",
    /// N8.
    Commit = "commit",
    /// N12.
    Recount = "recount",
    /// N12.
    Merge = "merge",
    /// N12.
    Attend = "attend",
    /// N12.
    RegionTerm = "region_term",
    /// N12.
    Merged = "merged",
    /// N14.
    Delete = "delete",
    /// N14.
    Forget = "forget",
    /// N14.
    DeleteNamespace = "delete_namespace",
    /// X6.
    Fence = "fence",
    /// X6.
    Lower = "lower",
}

fn prelude() -> String {
    let mut text = String::new();
    let mut local = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "local {name} = {value}");
    };
    for (position, name) in NAMES.iter().enumerate() {
        local(&format!("K_{}", name.to_uppercase()), &format!("KEYS[{}]", position + 1));
    }
    local("K_COUNTS", &"KEYS[1]");
    local("K_DELETED", &"KEYS[2]");
    local("K_HOME_STATE", &"KEYS[3]");
    local("K_RECOUNTS", &"KEYS[4]");
    local("K_CROSSINGS", &"KEYS[5]");
    local("K_HOME_PENDING", &"KEYS[6]");
    local("K_HOME_DIRTY", &"KEYS[7]");
    local("K_BEHIND", &"KEYS[8]");
    local("K_REGIONS", &"KEYS[9]");
    local("K_KEPT", &format!("KEYS[{}]", NAMES.len() + 1));
    local("K_ARCHIVE", &format!("KEYS[{}]", NAMES.len() + 1));
    local("K_SETTLED_COUNTS", &format!("KEYS[{}]", NAMES.len() + 1));
    local("K_SETTLED_NAMES", &format!("KEYS[{}]", NAMES.len() + 2));
    for (answer, name) in CounterAnswer::ALL {
        local(name, &(*answer as u8));
    }
    local("WINDOW_MS", &WINDOW_MS);
    local("ACCEPT_MS_MAX", &ACCEPT_MS_MAX);
    local("HOLD_GROWTH", &HOLD_GROWTH);
    local("HOLD_MAX_MS", &HOLD_MAX_MS);
    local("SLOTS_MIN", &SLOTS_MIN);
    local("SLOTS_MAX", &SLOTS_MAX);
    local("CLOSED_UP", &CLOSED_UP);
    local("CLOSED_DOWN", &CLOSED_DOWN);
    local("HAS_OLDER", &HAS_OLDER);
    local("PENDING_HEAD", &format!("'{PENDING_HEAD_LAYOUT}'"));
    local("PENDING_HEAD_BYTES", &PENDING_HEAD_BYTES);
    local("OLDER_FIELD", &format!("string.char({})", u32::from(OLDER_FIELD)));
    local("INCARNATION_FIELD", &format!("'\\{}'", u32::from(INCARNATION_FIELD)));
    local("DELETED_FIELD", &format!("'\\{}'", u32::from(DELETED_FIELD)));
    local("DELETED_REVISION", &format!("'{}'", "\\255".repeat(6)));
    local("DELETED", &format!("'\\{DELETED_BYTE}'"));
    local("CHECKPOINT_BYTES", &CHECKPOINT_BYTES);
    local("FIRST_AGE_MS_MAX", &FIRST_AGE_MS_MAX);
    local("LOG_STATE", &format!("'{LOG_STATE_LAYOUT}'"));
    local("CHECKPOINT", &format!("'{CHECKPOINT_LAYOUT}'"));
    local("EPOCH_BYTES", &EPOCH_BYTES);
    local("CLEARED_BYTES", &CLEARED_BYTES);
    local("REGION_RECORD", &format!("'{REGION_RECORD_LAYOUT}'"));
    local("CROSSINGS_MAX", &CROSSINGS_MAX);
    text
}

/// The keys of one shard of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterShardKeys {
    prefix: String,
}

impl CounterShardKeys {
    /// The keys of this shard in a store without partitions; `namespace`: its tag.
    pub fn new(namespace: &str, shard: u16) -> CounterShardKeys {
        CounterShardKeys::within(&Keyspace::default(), namespace, shard)
    }

    /// The same in a partition.
    pub fn within(partition: &Keyspace, namespace: &str, shard: u16) -> CounterShardKeys {
        CounterShardKeys { prefix: partition.key(&format!("tc:{{{namespace}/{shard}}}:")) }
    }

    /// One of [`NAMES`], or another of the same shard.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// KEYS of the scripts of the event log.
    pub fn log(&self) -> [String; 4] {
        NAMES.map(|name| self.key(name))
    }

    /// KEYS of `append`, in front of the time buckets: also the checkpoints.
    pub fn append(&self) -> [String; 5] {
        let [state, pending, dirty, layout] = self.log();
        [state, pending, dirty, layout, self.counts()]
    }

    /// The records of one time bucket.
    pub fn events(&self, bucket_s: u64, number: u64) -> String {
        self.key(&format!("events:{bucket_s}:{number}"))
    }

    /// The number of a BEST_EFFORT counter (N4).
    pub fn cached(&self, counter: &str) -> String {
        self.key(&format!("cached:{counter}"))
    }

    /// The checkpoints of the counters whose home is this shard.
    pub fn counts(&self) -> String {
        self.key("counts")
    }

    /// KEYS of `settle`: also the checkpoints, and the names for the archive.
    pub fn settle(&self) -> [String; 6] {
        let [state, pending, dirty, layout, counts] = self.append();
        [state, pending, dirty, layout, counts, self.key(SETTLED_NAMES)]
    }

    /// KEYS of the scripts of the archive.
    pub fn archive(&self) -> [String; 5] {
        let [state, pending, dirty, layout] = self.log();
        [state, pending, dirty, layout, self.key(ARCHIVE)]
    }

    /// KEYS of the scripts that write checkpoints.
    pub fn home(&self) -> [String; 4] {
        [self.counts(), self.key(DELETED), self.key("state"), self.key(RECOUNTS)]
    }

    /// KEYS of `commit` and `recount`: also the crossings, and what is pending in the home shard.
    pub fn commit(&self) -> [String; 7] {
        let [counts, deleted, state, recounts] = self.home();
        [counts, deleted, state, recounts, self.key(CROSSINGS), self.key("pending"), self.key("dirty")]
    }

    /// KEYS of the scripts of regions; without the last one, those of the scripts that write checkpoints in a namespace with
    /// regions.
    pub fn regions(&self) -> [String; 9] {
        let [counts, deleted, state, recounts, crossings, pending, dirty] = self.commit();
        [counts, deleted, state, recounts, crossings, pending, dirty, self.key(BEHIND), self.key(REGIONS)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::slot_of;

    #[test]
    fn every_script_assembles_and_says_what_it_is() {
        for script in CounterScript::ALL {
            assert!(script.source().starts_with("#!lua"), "{}", script.name());
            assert!(script.file().contains(&format!("\n-- {}: ", script.name())), "{} has no header", script.name());
            assert_eq!(script.sha1().len(), 40);
            let lines = script.file().lines().count();
            assert!(lines <= crate::script::SCREEN_LINES, "{} has {lines} lines", script.name());
        }
        assert_eq!(DELETED_REVISION.to_be_bytes()[2..], [255; 6], "the prelude spells it out");
        for (number, (answer, _)) in CounterAnswer::ALL.iter().enumerate() {
            assert_eq!(CounterAnswer::from_code(number as i64), Some(*answer));
        }
    }

    #[test]
    fn fields_of_the_state_stand_where_its_layout_has_them() {
        let widths = LOG_STATE_LAYOUT.split('I').skip(1).map(|width| width.parse::<usize>().unwrap());
        let ends = widths.scan(0, |end, width| {
            *end += width;
            Some(*end - width..*end)
        });
        let fields: Vec<Range<usize>> = ends.collect();
        let named = [STATE_REVISION, STATE_SEALED_TO, STATE_OPEN, STATE_SHOWN, STATE_PRUNED, STATE_LATEST];
        assert_eq!([0, 1, 2, 3, 10, 11].map(|number: usize| fields[number].clone()), named);
    }

    #[test]
    fn records_are_as_long_as_their_layouts() {
        // A number has its bytes behind it, and B has one.
        let bytes = |layout: &str| {
            let widths = layout.chars().filter_map(|c| c.to_digit(10)).sum::<u32>() as usize;
            widths + layout.matches('B').count()
        };
        assert_eq!(bytes(PENDING_HEAD_LAYOUT), PENDING_HEAD_BYTES);
        assert_eq!(bytes(CHECKPOINT_LAYOUT), CHECKPOINT_BYTES);
        assert_eq!(bytes(REGION_RECORD_LAYOUT), REGION_RECORD_BYTES);
    }

    #[test]
    fn every_key_of_a_shard_is_behind_its_tag() {
        let keys = CounterShardKeys::new("ads", 3);
        for key in keys.log().into_iter().chain([keys.events(600, 7), keys.counts()]) {
            assert!(key.starts_with("tc:{ads/3}:"), "{key}");
        }
        let partition = Keyspace::partition(5, 8);
        let keys = CounterShardKeys::within(&partition, "ads", 3);
        for key in keys.home().into_iter().chain([keys.cached("c"), partition.key(NAMESPACES)]) {
            assert_eq!(slot_of(&key), partition.slot(), "{key}");
        }
    }
}
