//! What a process has added, in a form that survives `kill -9`: before and after each add its number is written to a file. The page cache
//! keeps it, as it keeps the cells.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The namespaces in which the processes add.
pub(super) const NAMESPACES: [&str; 2] = ["accurate", "eventual"];
/// Counters of each namespace.
const COUNTERS: u64 = 3;
/// Threads of a process that add at the same time.
pub(super) const THREADS: u64 = 2;

/// By namespace and counter.
pub(super) type Key = (&'static str, String);

/// The counters of a folder; `prefix` keeps those of several folders separate.
pub(super) fn keys(prefix: &str) -> Vec<Key> {
    let counters = (0..COUNTERS).map(|number| format!("{prefix}-{number}"));
    counters.flat_map(|counter| NAMESPACES.map(|namespace| (namespace, counter.clone()))).collect()
}

/// One add: the number of its counter in [`keys`], and its delta.
pub(super) fn planned(life: u64, thread: u64, number: u64) -> (usize, i64) {
    // Most adds that are near to each other have different deltas, so that a sum shows which of them it lacks.
    let mixed = (life << 40 ^ thread << 32 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let delta = (mixed % 997 + 1).cast_signed();
    ((mixed / 997 % (COUNTERS * 2)) as usize, if number % 5 == 4 { -delta } else { delta })
}

/// The adds of one thread of one process.
pub(super) struct Ledger(File);

fn path(folder: &Path, life: u64, thread: u64) -> PathBuf {
    folder.join(format!("ledger-{life}-{thread}"))
}

impl Ledger {
    pub(super) fn create(folder: &Path, life: u64, thread: u64) -> Ledger {
        let file = OpenOptions::new().create_new(true).write(true).open(path(folder, life, thread));
        Ledger(file.expect("a new file"))
    }

    /// Writes that this number of adds has begun.
    pub(super) fn begun(&self, adds: u64) {
        self.0.write_all_at(&adds.to_le_bytes(), 0).expect("room");
    }

    /// Writes that this number of adds has returned.
    pub(super) fn ended(&self, adds: u64) {
        self.0.write_all_at(&adds.to_le_bytes(), 8).expect("room");
    }
}

/// What a thread has noted as begun and as ended; `None`: it has no ledger.
pub(super) fn numbers(folder: &Path, life: u64, thread: u64) -> Option<(u64, u64)> {
    let bytes = std::fs::read(path(folder, life, thread)).ok()?;
    let number = |at: usize| bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    Some((number(0), number(8)))
}

/// What is known of the adds of a life.
#[derive(Default)]
pub(super) struct Known {
    /// By the number of the counter.
    pub(super) certain: BTreeMap<usize, i64>,
    /// Adds that had begun and had not returned.
    pub(super) uncertain: Vec<(usize, i64)>,
    pub(super) adds: u64,
}

/// Reads what the threads of a life have added. The process has ended.
pub(super) fn read(folder: &Path, life: u64) -> Known {
    let mut known = Known::default();
    for thread in 0..THREADS {
        // It died before its first add.
        let Some((begun, ended)) = numbers(folder, life, thread) else { continue };
        assert!(begun == ended || begun == ended + 1, "{begun} begun and {ended} ended");
        for number in 0..ended {
            let (counter, delta) = planned(life, thread, number);
            *known.certain.entry(counter).or_default() += delta;
        }
        known.uncertain.extend((ended..begun).map(|number| planned(life, thread, number)));
        known.adds += ended;
        std::fs::remove_file(path(folder, life, thread)).expect("the file");
    }
    known
}
