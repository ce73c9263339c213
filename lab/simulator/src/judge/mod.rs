//! The judge of an episode: rules that a history must keep.
//!
//! What lives here: the history (`history`) and the rules (`rules`), with tests on histories that break each of them. What
//! may not: how an episode is made (`episode/`).

mod history;
mod rules;
#[cfg(test)]
mod tests;

pub use history::{History, SeenLease, SeenRevision, SeenTransition, Written};
pub use rules::{EXCLUSIVITY_KEY, Rule};
