//! Ids that rise with time, and some far above the others (W2).
//!
//! What lives here: ids within reach of the keys (`outliers`), ids beyond it (`strays`), any share of wild ones (`wild`), and ids that come
//! and go (`gone`).

mod gone;
mod outliers;
mod strays;
mod wild;

use tallystone_compact::{CounterSet, Fetched, Field, Mode, Options, Schema};

/// A set with one field of 8 bits.
fn set(options: Options) -> CounterSet {
    CounterSet::new(Schema::new(vec![Field::parse(b"a", b"8").unwrap()]).unwrap(), options, 7).unwrap()
}

fn count(set: &mut CounterSet, id: u64) {
    set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
}

/// Each of these ids reads 1.
fn reads_ones(set: &mut CounterSet, ids: &[u64]) {
    let mut found = Vec::new();
    set.read_many(ids, &Fetched::none(), &mut found).unwrap();
    assert_eq!(found.len(), ids.len());
    let wrong = found.iter().filter(|value| **value != 1).count();
    assert_eq!(wrong, 0, "of {}", ids.len());
}
