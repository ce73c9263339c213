//! The judge of an episode: rules that a history must keep.
//!
//! What lives here: the history (`history`), the rules (`rules`) and those about all shards of a queue (`spread`), with tests on histories
//! that break each of them. What may not: how an episode is made (`episode/`).

mod history;
mod rules;
mod spread;
#[cfg(test)]
mod tests;

pub use history::{EXCLUSIVITY_KEY, History, QueueMessage, SeenLease, SeenRevision, SeenTransition, Written};
pub use rules::Rule;
