//! Which thread adds to which stripe. A thread keeps its stripe while it lives; then the next thread continues with its cells.

use super::cells::{Cells, SHARED_STRIPE};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The stripes of one folder that have no thread.
pub(super) struct Stripes {
    /// Distinguishes the folders that this process has opened.
    instance: u64,
    free: Mutex<Vec<usize>>,
}

/// Where a thread adds.
#[derive(Clone, Copy)]
pub(super) enum ThreadStripe {
    /// In the stripe that begins at this word, to which no other thread adds.
    Own(usize),
    /// In the stripe of all.
    Shared,
}

/// The stripe of this thread in the folder that it used last.
#[derive(Clone, Copy)]
struct Current {
    /// 0: none.
    instance: u64,
    stripe: ThreadStripe,
}

const NONE: Current = Current { instance: 0, stripe: ThreadStripe::Shared };

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(NONE) };
    static OWNED: RefCell<Owned> = const { RefCell::new(Owned(Vec::new())) };
}

/// The stripes of this thread: the folder, the stripe and its first word.
struct Owned(Vec<(Weak<Stripes>, usize, usize)>);

impl Drop for Owned {
    fn drop(&mut self) {
        // What this thread adds from here on, while it ends, goes to the shared stripe.
        CURRENT.set(NONE);
        for (stripes, stripe, _) in self.0.drain(..) {
            if let Some(stripes) = stripes.upgrade() {
                stripes.free.lock().unwrap_or_else(PoisonError::into_inner).push(stripe);
            }
        }
    }
}

impl Stripes {
    /// All stripes that the folder has, except the shared one, are free: their threads died with their process.
    pub(super) fn new(cells: &Cells) -> Arc<Stripes> {
        static INSTANCES: AtomicU64 = AtomicU64::new(1);
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        Arc::new(Stripes { instance, free: Mutex::new((SHARED_STRIPE + 1..cells.stripes_used()).collect()) })
    }

    /// Where this thread adds.
    #[inline]
    pub(super) fn of_thread(self: &Arc<Self>, cells: &Cells) -> ThreadStripe {
        let current = CURRENT.get();
        if current.instance == self.instance { current.stripe } else { self.find(cells) }
    }

    #[cold]
    fn find(self: &Arc<Self>, cells: &Cells) -> ThreadStripe {
        let found = OWNED.try_with(|owned| {
            let mut owned = owned.borrow_mut();
            owned.0.retain(|(stripes, ..)| stripes.strong_count() > 0);
            let known = owned.0.iter().find(|(stripes, ..)| stripes.as_ptr() == Arc::as_ptr(self));
            if let Some((_, _, first)) = known {
                return ThreadStripe::Own(*first);
            }
            let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(stripe) = free.or_else(|| cells.add_stripe()) else { return ThreadStripe::Shared };
            owned.0.push((Arc::downgrade(self), stripe, cells.first_of(stripe)));
            ThreadStripe::Own(cells.first_of(stripe))
        });
        // The thread is ending, and has given its stripes back: it remembers nothing more.
        let Ok(stripe) = found else { return ThreadStripe::Shared };
        CURRENT.set(Current { instance: self.instance, stripe });
        stripe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(stripe: ThreadStripe) -> usize {
        match stripe {
            ThreadStripe::Own(first) => first,
            ThreadStripe::Shared => 0,
        }
    }

    #[test]
    fn l1_each_thread_has_a_stripe_until_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        Cells::create(folder.path(), 7, 100, 3, 1).expect("a file");
        let cells = Cells::open(folder.path(), 100, 3).expect("the file");
        let (stripes, other) = (Stripes::new(&cells), Stripes::new(&cells));
        let mine = first(stripes.of_thread(&cells));
        assert_eq!(mine, cells.first_of(1));
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| first(stripes.of_thread(&cells))).join().expect("a thread");
            assert_eq!(theirs, cells.first_of(2), "it is given back when the thread ends");
            let both = scope.spawn(|| [&other, &stripes].map(|stripes| first(stripes.of_thread(&cells))));
            assert_eq!(both.join().expect("a thread"), [0, cells.first_of(2)], "three stripes are the maximum");
        });
        assert_eq!(first(stripes.of_thread(&cells)), mine);
        drop(stripes);
        let reopened = Stripes::new(&cells);
        assert_ne!(first(reopened.of_thread(&cells)), 0);
    }
}
