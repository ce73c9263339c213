//! The open connections of a process, for a bound on what all of them hold together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What each of them holds, by number.
pub(super) struct OpenConnections<T>(Mutex<Numbered<T>>);

struct Numbered<T> {
    next: u64,
    open: BTreeMap<u64, Weak<T>>,
}

impl<T> Default for OpenConnections<T> {
    fn default() -> Self {
        OpenConnections(Mutex::new(Numbered { next: 0, open: BTreeMap::new() }))
    }
}

impl<T> OpenConnections<T> {
    /// Adds a connection. What is made of its number removes it when it is dropped.
    pub(super) fn add(&self, make: impl FnOnce(u64) -> T) -> Arc<T> {
        let mut numbered = locked(&self.0);
        let number = numbered.next;
        numbered.next += 1;
        let connection = Arc::new(make(number));
        numbered.open.insert(number, Arc::downgrade(&connection));
        connection
    }

    pub(super) fn remove(&self, number: u64) {
        locked(&self.0).open.remove(&number);
    }

    /// All of them. They are used without the lock: the last reference to one takes it.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        locked(&self.0).open.values().filter_map(Weak::upgrade).collect()
    }
}

/// What the mutex guards, also after a panic of another holder.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
