//! The value of a key, and the registry of all values.

use crate::files::FileTable;
use crate::{main_thread, reaper};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use tallystone_compact::{CounterSet, Mode, Refusal};

/// What the engine holds a pointer to.
pub(crate) struct Value {
    pub(crate) shared: Arc<Shared>,
}

/// A set, which other threads may only refer to.
pub(crate) struct Shared {
    /// The main thread alone takes this lock: no other thread can hold it when the engine forks.
    held: Mutex<Held>,
    /// The number of the set in the registry.
    number: u64,
    /// Whether background work is to be looked for.
    pub(crate) is_awake: AtomicBool,
    /// Whether time alone makes work due, so that the set is in the queue of these.
    pub(crate) is_waiting: AtomicBool,
    /// Whether pieces of a dump are still to come, or one has failed.
    is_restoring: AtomicBool,
    /// Commands whose pages have been read, and that will run before the engine sleeps: files are not replaced meanwhile.
    pub(crate) ready: AtomicU32,
}

/// The set and its files.
pub(crate) struct Held {
    set: Option<CounterSet>,
    pub(crate) files: FileTable,
    /// Whether a thread works on a job for this set.
    pub(crate) has_job: bool,
    /// After a failed job: not before this time.
    pub(crate) retry_ms: u64,
}

impl Held {
    /// The set.
    #[inline]
    pub(crate) fn set(&mut self) -> &mut CounterSet {
        self.set.as_mut().expect("a value has a set")
    }

    /// The set, and its files.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut CounterSet, &FileTable) {
        (self.set.as_mut().expect("a value has a set"), &self.files)
    }

    /// Takes a piece of a dump.
    pub(crate) fn restore(&mut self, mode: Mode, piece: &[u8]) -> Result<(), Refusal> {
        CounterSet::restore(&mut self.set, mode, piece, &mut self.files)
    }

    /// Takes a piece of a dump that a primary has accepted. No file can be written: cold tables stay in memory.
    pub(crate) fn restore_in_memory(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        CounterSet::restore_in_memory(&mut self.set, piece)
    }

    /// A set to come, from the pieces of a dump.
    pub(crate) fn empty() -> Held {
        Held { set: None, files: FileTable::default(), has_job: false, retry_ms: 0 }
    }

    /// Whether there is a set. It may be one whose pieces are still to come.
    pub(crate) fn has_set(&self) -> bool {
        self.set.is_some()
    }
}

/// Sets of at most this many bytes are freed at once: an engine that evicts sees their memory return.
const SMALL_BYTES: usize = 1 << 20;

/// All sets by their numbers. There may be a hundred thousand, so nothing that a command does passes all of them.
struct Registry {
    sets: BTreeMap<u64, Weak<Shared>>,
    next: u64,
    /// Where the search for sets that are gone goes on.
    swept: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { sets: BTreeMap::new(), next: 0, swept: 0 });
/// Sets that are not freed.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Entries that are examined whenever one is added, so that those of freed sets do not become more and more.
const SWEPT: usize = 2;

impl Registry {
    /// Removes entries of sets that another thread has freed.
    fn sweep(&mut self) {
        for _ in 0..SWEPT {
            let Some((&number, set)) = self.sets.range(self.swept..).next() else {
                self.swept = 0;
                return;
            };
            if set.strong_count() == 0 {
                self.sets.remove(&number);
            }
            self.swept = number + 1;
        }
    }
}

impl Value {
    /// A value for a set without files.
    pub(crate) fn new(set: CounterSet) -> Value {
        Value::from_held(Held { set: Some(set), ..Held::empty() })
    }

    /// A value for a set.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn from_held(held: Held) -> Value {
        let is_restoring = held.set.as_ref().expect("a value has a set").is_restoring();
        let mut registry = registry();
        let number = registry.next;
        let shared = Arc::new(Shared {
            held: Mutex::new(held),
            number,
            is_awake: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            is_restoring: AtomicBool::new(is_restoring),
            ready: AtomicU32::new(0),
        });
        COUNT.fetch_add(1, Relaxed);
        registry.sweep();
        registry.next += 1;
        registry.sets.insert(number, Arc::downgrade(&shared));
        drop(registry);
        Value { shared }
    }
}

impl Drop for Shared {
    /// On the thread that holds the last handle: a large set is not freed on the engine's thread.
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Relaxed);
        if !main_thread::is_this() {
            return;
        }
        registry().sets.remove(&self.number);
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_large = held.set.as_ref().is_some_and(|set| set.memory_bytes() > SMALL_BYTES);
        if is_large || held.files.iter().next().is_some() {
            reaper::free_later(std::mem::replace(held, Held::empty()));
        }
    }
}

impl Shared {
    /// The set. `None`: a bug has left it half-changed, and nothing of it is served.
    #[inline]
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, Held>> {
        self.held.lock().ok()
    }

    /// Whether the set lacks pieces of the dump that it is made of.
    #[inline]
    pub(crate) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Relaxed)
    }

    /// Takes a piece of a dump; and whether the restore has failed by it. `None`: a bug has left the set half-changed.
    pub(crate) fn restore(&self, mode: Mode, piece: &[u8]) -> Option<(Result<(), Refusal>, bool)> {
        let mut held = self.lock()?;
        let had_failed = held.set().has_failed();
        let taken = held.restore(mode, piece);
        self.is_restoring.store(held.set().is_restoring(), Relaxed);
        Some((taken, !had_failed && held.set().has_failed()))
    }

    /// The set, whatever happened to it; for a snapshot that has to say something.
    pub(crate) fn lock_anyway(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set, unless this thread is in the midst of it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Held>> {
        self.held.try_lock().ok()
    }
}

/// Only the main thread takes this lock, and drops no set meanwhile.
fn registry() -> MutexGuard<'static, Registry> {
    // A map of handles is whole whatever happened.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All values, also those that the engine has not freed yet. Main thread only.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    registry().sets.values().filter_map(Weak::upgrade).collect()
}

/// How many there are.
pub(crate) fn count() -> usize {
    COUNT.load(Relaxed)
}

/// The value with the least number from this one on; without it, if it has been freed. Main thread only. A thread that reports its crash in
/// the midst of a change of the registry finds none.
pub(crate) fn from(number: u64) -> Option<(u64, Option<Arc<Shared>>)> {
    let registry = match REGISTRY.try_lock() {
        Ok(registry) => registry,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    let (&number, set) = registry.sets.range(number..).next()?;
    Some((number, set.upgrade()))
}
