//! The expected totals: a count of the file itself, with neither queue nor counters in between.

use crate::flights::flight;
use anyhow::Result;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// What the file says.
pub(super) struct Direct {
    /// The flights of each counter.
    pub(super) counts: BTreeMap<String, i64>,
    /// The aircraft of each route.
    pub(super) aircraft_of_route: BTreeMap<String, i64>,
}

/// The name of a route.
pub(super) fn route_of(origin: &str, dest: &str) -> String {
    format!("{origin}-{dest}")
}

/// The names of the counters that a flight adds to.
pub(super) fn counters_of(carrier: &str, origin: &str, dest: &str, aircraft: &str) -> [String; 4] {
    [
        format!("carrier/{carrier}"),
        format!("origin/{origin}"),
        format!("route/{}", route_of(origin, dest)),
        format!("aircraft/{aircraft}"),
    ]
}

/// The expected totals. `None`: of the embedded file.
pub(super) fn count_directly(file: Option<&Path>) -> Result<Direct> {
    let (mut counts, mut seen) = (BTreeMap::new(), HashSet::new());
    let (mut aircraft_of_route, mut pairs) = (BTreeMap::new(), HashSet::new());
    for flight in flight::read(file)? {
        let flight = flight?;
        if !flight.tailnum.is_empty() && seen.insert(flight.id()) {
            for counter in counters_of(&flight.carrier, &flight.origin, &flight.dest, &flight.tailnum) {
                *counts.entry(counter).or_default() += 1;
            }
            let route = route_of(&flight.origin, &flight.dest);
            if pairs.insert((route.clone(), flight.tailnum)) {
                *aircraft_of_route.entry(route).or_default() += 1;
            }
        }
    }
    Ok(Direct { counts, aircraft_of_route })
}
