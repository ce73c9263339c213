//! The log of what each write replaced: undone from the end, it is the state of a replica that lacks the last writes.

use super::value::{Bytes, Data, Entry};
use std::collections::{BTreeMap, VecDeque};

/// What one change has replaced.
#[derive(Debug)]
pub(super) enum Undo {
    /// A whole key; `None`: it did not exist.
    Key(Bytes, Option<Entry>),
    /// A field of a hash.
    Field(Bytes, Bytes, Option<Bytes>),
    /// The score of a member of a sorted set.
    Score(Bytes, Bytes, Option<f64>),
    /// Whether a set had the member.
    Member(Bytes, Bytes, bool),
}

/// The changes of the last writes. A write is one command or one script call.
#[derive(Debug, Default)]
pub(super) struct Log {
    writes: VecDeque<Vec<Undo>>,
    current: Vec<Undo>,
    writes_kept: usize,
}

impl Log {
    pub(super) fn keeping(writes_kept: usize) -> Log {
        Log { writes_kept, ..Log::default() }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.writes_kept > 0
    }

    pub(super) fn add(&mut self, undo: Undo) {
        if self.is_kept() {
            self.current.push(undo);
        }
    }

    /// Ends a write. Returns whether it has changed anything.
    pub(super) fn end(&mut self) -> bool {
        if self.current.is_empty() {
            return false;
        }
        if self.writes.len() == self.writes_kept {
            self.writes.pop_front();
        }
        self.writes.push_back(std::mem::take(&mut self.current));
        true
    }

    pub(super) fn forget(&mut self) {
        self.writes.clear();
    }

    /// Takes the last write out of the log and out of the keys.
    pub(super) fn undo_last(&mut self, keys: &mut BTreeMap<Bytes, Entry>) -> bool {
        let Some(changes) = self.writes.pop_back() else { return false };
        for change in changes.into_iter().rev() {
            undo(change, keys);
        }
        true
    }
}

fn undo(change: Undo, keys: &mut BTreeMap<Bytes, Entry>) {
    match change {
        Undo::Key(key, Some(entry)) => drop(keys.insert(key, entry)),
        Undo::Key(key, None) => drop(keys.remove(&key)),
        Undo::Field(key, field, before) => {
            if let Some(Entry { data: Data::Hash(hash), .. }) = keys.get_mut(&key) {
                match before {
                    Some(value) => hash.insert(field, value),
                    None => hash.remove(&field),
                };
            }
        }
        Undo::Score(key, member, before) => {
            if let Some(Entry { data: Data::Sorted(sorted), .. }) = keys.get_mut(&key) {
                sorted.put(&member, before);
            }
        }
        Undo::Member(key, member, before) => {
            if let Some(Entry { data: Data::Set(set), .. }) = keys.get_mut(&key) {
                match before {
                    true => set.insert(member),
                    false => set.remove(&member),
                };
            }
        }
    }
}
