//! The expected totals: a count of the file itself, with neither queue nor counters in between.

use crate::flights::flight;
use anyhow::Result;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The names of the counters that a flight adds to.
pub(super) fn counters_of(carrier: &str, origin: &str, dest: &str, aircraft: &str) -> [String; 4] {
    [
        format!("carrier/{carrier}"),
        format!("origin/{origin}"),
        format!("route/{origin}-{dest}"),
        format!("aircraft/{aircraft}"),
    ]
}

/// The expected total of every counter, by name. `None`: the embedded file.
pub(super) fn count_directly(file: Option<&Path>) -> Result<BTreeMap<String, i64>> {
    let (mut counts, mut seen) = (BTreeMap::new(), HashSet::new());
    for flight in flight::read(file)? {
        let flight = flight?;
        if !flight.tailnum.is_empty() && seen.insert(flight.id()) {
            for counter in counters_of(&flight.carrier, &flight.origin, &flight.dest, &flight.tailnum) {
                *counts.entry(counter).or_default() += 1;
            }
        }
    }
    Ok(counts)
}
