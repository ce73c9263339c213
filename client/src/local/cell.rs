//! One cell: a total that only grows by adds. Generic, so that loom can run it in every order of its operations.

/// The operations of an atomic 64-bit integer that cells need, all relaxed: each cell is a number by itself.
pub(super) trait Cell {
    fn load(&self) -> i64;
    fn store(&self, total: i64);
    fn fetch_add(&self, delta: i64);
}

impl Cell for std::sync::atomic::AtomicI64 {
    #[inline]
    fn load(&self) -> i64 {
        self.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, total: i64) {
        self.store(total, std::sync::atomic::Ordering::Relaxed);
    }

    #[inline]
    fn fetch_add(&self, delta: i64) {
        self.fetch_add(delta, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Adds to a cell to which no other thread adds: a load and a store. A reader sees the add or does not; it never sees a part.
#[inline]
pub(super) fn add_as_owner(cell: &impl Cell, delta: i64) {
    cell.store(cell.load().wrapping_add(delta));
}

/// Adds to a cell to which any thread may add.
#[inline]
pub(super) fn add_shared(cell: &impl Cell, delta: i64) {
    cell.fetch_add(delta);
}

/// The total of the cells of a counter, modulo 2^64. Each cell contributes a beginning of the sequence of its adds, so the difference of
/// two totals has every add at most once, and together with the next differences exactly once.
#[inline]
pub(super) fn total<'a, C: Cell + 'a>(cells: impl Iterator<Item = &'a C>) -> i64 {
    cells.fold(0, |total, cell| total.wrapping_add(cell.load()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicI64, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    impl Cell for AtomicI64 {
        fn load(&self) -> i64 {
            self.load(Ordering::Relaxed)
        }

        fn store(&self, total: i64) {
            self.store(total, Ordering::Relaxed);
        }

        fn fetch_add(&self, delta: i64) {
            self.fetch_add(delta, Ordering::Relaxed);
        }
    }

    struct Counter {
        /// The first one is shared, the second one has an owner.
        cells: [AtomicI64; 2],
        /// Whether the second one is free.
        free: Mutex<bool>,
    }

    impl Counter {
        /// As a thread does that lives for two adds.
        fn add_twice(&self) {
            let owns = std::mem::take(&mut *self.free.lock().unwrap());
            for delta in [1, 10] {
                if owns { add_as_owner(&self.cells[1], delta) } else { add_shared(&self.cells[0], delta) }
            }
            if owns {
                *self.free.lock().unwrap() = true;
            }
        }
    }

    /// Two threads add, hand their cell over or share one, while pushes take what is not pushed yet.
    #[test]
    fn l2_pushes_next_to_adds_count_each_add_once_in_every_order() {
        loom::model(|| {
            let counter = Arc::new(Counter { cells: [AtomicI64::new(0), AtomicI64::new(0)], free: Mutex::new(true) });
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    let counter = counter.clone();
                    thread::spawn(move || counter.add_twice())
                })
                .collect();
            let mut base = 0;
            let mut push = || {
                let total = total(counter.cells.iter());
                let delta = total.wrapping_sub(base);
                assert!((0..=22).contains(&delta), "{delta} after {base}");
                base = total;
                delta
            };
            let mut pushed = push();
            for adder in adders {
                adder.join().unwrap();
            }
            pushed += push();
            assert_eq!(pushed, 22);
        });
    }

    /// As `free_unused` does: a slot is freed if nothing of it is unpushed and no handle is left.
    #[test]
    fn l3_a_slot_is_not_freed_before_the_adds_of_its_last_handle_are_seen() {
        loom::model(|| {
            let (cells, mut slot) = (Arc::new([AtomicI64::new(0), AtomicI64::new(0)]), Arc::new(()));
            let adders: Vec<_> = [0, 1]
                .map(|own| {
                    let (cells, handle) = (cells.clone(), slot.clone());
                    thread::spawn(move || {
                        add_as_owner(&cells[own], 5);
                        drop(handle);
                    })
                })
                .into();
            if Arc::get_mut(&mut slot).is_some() {
                assert_eq!(total(cells.iter()), 10, "these adds would be lost");
            }
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            assert!(Arc::get_mut(&mut slot).is_some());
        });
    }
}
