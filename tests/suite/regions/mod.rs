//! Counters that are spread over regions (N12), from the wire to the global count: three installations, each with its Redis and its
//! processes, and a mirror between their topics that repeats and reorders records.
//!
//! What lives here: the installations (`stage`), the mirror (`mirror`), what readers and clears of each region get (`counted`),
//! namespaces that are left out for a while (`covered`), and kills at random (`kills`). What may not: what can be shown at the stores alone (`counters`).

mod counted;
mod covered;
mod kills;
mod mirror;
mod stage;
