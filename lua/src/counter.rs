//! The scripts of the counters, their keys and their records. A namespace's event log and checkpoints are spread over
//! shards, each behind a hash tag of its own.

use crate::script::{parts, scripts};
use std::fmt::Write;
use std::ops::Range;

/// The names of a shard's keys, in the order of KEYS. Lua knows them as `K_STATE`, `K_PENDING`, …
pub const NAMES: [&str; 4] = [
    "state",   // string: revision, fence, clock, the rate of late
    "pending", // hash: counter → what no rollup has settled
    "dirty",   // sorted set: since when a rollup is waited for → counter
    "layout",  // string: from which window on a window has how many slots
];
/// The registry of namespaces.
pub const NAMESPACES: &str = "tc:namespaces";
/// Time in the event log comes in windows: sums are kept and fences stand at their bounds only.
pub const WINDOW_MS: u64 = 500;
/// The longest that an event's time may be behind.
pub const ACCEPT_MS_MAX: u64 = 3_600_000;
/// Slots of records in one window, at least: few enough to be full at a low rate, and enough for a burst.
pub const SLOTS_MIN: u64 = 16;
/// At most.
pub const SLOTS_MAX: u64 = 65_536;
/// The state of a shard of the event log; `counter/shard.lua` names its fields.
pub const LOG_STATE_LAYOUT: &str = ">I6I6I6I6I5I4I4I4I4I5I6I5";
/// Where in it the revision of its namespace stands: its first field.
pub const STATE_REVISION: Range<usize> = 0..6;
/// Where in it the shard's clock stands: its fourth field.
pub const STATE_CLOCK: Range<usize> = 18..24;
/// Where it says before what time records may be gone: its eleventh field.
pub const STATE_PRUNED: Range<usize> = 50..56;
/// Codes of what a counter takes no more of.
pub const CLOSED_UP: u8 = 1;
/// See [`CLOSED_UP`].
pub const CLOSED_DOWN: u8 = 2;
/// Beside those in one byte: the counter has many windows pending, and the older ones stand in a field of their own,
/// so that an add need not write them again.
pub const HAS_OLDER: u8 = 4;
/// Before the counter's name, that field. No name has a control character.
pub const OLDER_FIELD: char = '\u{1}';
/// A checkpoint: `counter/commit.lua` names its fields.
pub const CHECKPOINT_LAYOUT: &str = ">i4I4I6I6I6I7";

/// What a script answers, as a whole and of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Done.
    Ok = 0,
    /// There is no such shard yet.
    NoShard = 1,
    /// The namespace has another revision by now.
    Stale = 2,
    /// Item: it has counted before.
    Duplicate = 3,
    /// Item: the token has counted with something else.
    Conflict = 4,
    /// Item: its time is no longer open.
    TooOld = 5,
    /// Item: its time is not open yet.
    TooEarly = 6,
    /// Item: the counter cannot hold it.
    Overflow = 7,
    /// Item: nobody looks so far back.
    Expired = 8,
    /// Item: another rollup was faster, or has the lease by now.
    Lost = 9,
    /// The slots of events are laid out otherwise by now.
    LayoutChanged = 10,
    /// Item: its field is of another time than now.
    Restamp = 11,
}

impl Answer {
    /// All of them, in the order of their numbers, with their names in Lua.
    pub const ALL: [(Answer, &str); 12] = [
        (Answer::Ok, "OK"),
        (Answer::NoShard, "NO_SHARD"),
        (Answer::Stale, "STALE"),
        (Answer::Duplicate, "DUPLICATE"),
        (Answer::Conflict, "CONFLICT"),
        (Answer::TooOld, "TOO_OLD"),
        (Answer::TooEarly, "TOO_EARLY"),
        (Answer::Overflow, "OVERFLOW"),
        (Answer::Expired, "EXPIRED"),
        (Answer::Lost, "LOST"),
        (Answer::LayoutChanged, "LAYOUT_CHANGED"),
        (Answer::Restamp, "RESTAMP"),
    ];

    /// The answer of a number.
    pub fn from_code(code: i64) -> Option<Answer> {
        Answer::ALL.get(usize::try_from(code).ok()?).map(|(answer, _)| *answer)
    }
}

const PARTS: &[(&str, &str)] = parts!["counter": "shard"];

scripts! {
    /// One script: one verb of the counters' stores.
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
    /// N11.
    Touch = "touch",
    /// N7.
    Tick = "tick",
    /// N12.
    Prune = "prune",
    /// N8.
    Commit = "commit",
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
    for (answer, name) in Answer::ALL {
        local(name, &(answer as u8));
    }
    local("WINDOW_MS", &WINDOW_MS);
    local("ACCEPT_MS_MAX", &ACCEPT_MS_MAX);
    local("SLOTS_MIN", &SLOTS_MIN);
    local("SLOTS_MAX", &SLOTS_MAX);
    local("CLOSED_UP", &CLOSED_UP);
    local("CLOSED_DOWN", &CLOSED_DOWN);
    local("HAS_OLDER", &HAS_OLDER);
    local("OLDER_FIELD", &format!("string.char({})", u32::from(OLDER_FIELD)));
    local("LOG_STATE", &format!("'{LOG_STATE_LAYOUT}'"));
    local("CHECKPOINT", &format!("'{CHECKPOINT_LAYOUT}'"));
    text
}

/// A shard of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardKeys {
    tag: String,
}

impl ShardKeys {
    /// The keys of this shard.
    pub fn new(namespace: &str, shard: u16) -> ShardKeys {
        ShardKeys { tag: format!("{namespace}/{shard}") }
    }

    /// One of [`NAMES`], or another of the same shard.
    pub fn key(&self, name: &str) -> String {
        format!("tc:{{{}}}:{name}", self.tag)
    }

    /// KEYS of the scripts of the event log.
    pub fn log(&self) -> [String; 4] {
        NAMES.map(|name| self.key(name))
    }

    /// The records of one bucket of time.
    pub fn events(&self, bucket_s: u64, number: u64) -> String {
        self.key(&format!("events:{bucket_s}:{number}"))
    }

    /// A counter that is only cached (N4).
    pub fn cached(&self, counter: &str) -> String {
        self.key(&format!("cached:{counter}"))
    }

    /// The checkpoints of the counters whose home this shard is.
    pub fn counts(&self) -> String {
        self.key("counts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_assembles_and_says_what_it_is() {
        for script in CounterScript::ALL {
            assert!(script.source().starts_with("#!lua"), "{}", script.name());
            assert!(script.file().contains(&format!("\n-- {}: ", script.name())), "{} has no header", script.name());
            assert_eq!(script.sha1().len(), 40);
        }
        for (number, (answer, _)) in Answer::ALL.iter().enumerate() {
            assert_eq!(Answer::from_code(number as i64), Some(*answer));
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
        assert_eq!([&fields[0], &fields[3], &fields[10]], [&STATE_REVISION, &STATE_CLOCK, &STATE_PRUNED]);
    }

    #[test]
    fn every_key_of_a_shard_is_behind_its_tag() {
        let keys = ShardKeys::new("ads", 3);
        for key in keys.log().into_iter().chain([keys.events(600, 7), keys.counts()]) {
            assert!(key.starts_with("tc:{ads/3}:"), "{key}");
        }
    }
}
