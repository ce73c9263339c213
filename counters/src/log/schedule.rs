//! Which rollups are due. A counter is dirty from the append that makes it pending until a rollup has settled all of it;
//! the mark is written by the same atomic step as the event, so no event can lose its rollup (N9).
//!
//! **Circulation** (a word of Netflix's article) is the set of counters that are rolled up again and again. Which counters are in it is a
//! matter of the namespace's cardinality (N10): counters of a LOW namespace are due again `coalesce_ms` after each rollup,
//! whether or not anything was added, so that their counts stay exact to a recent time. Counters of a MEDIUM namespace are so
//! until they have had no event for ten minutes. After that, and in a HIGH namespace, they are in circulation only while they are
//! dirty.

use crate::names::CounterName;
use crate::refusal::Refusal;
#[cfg(doc)]
use tallystone_lua::counter::{HOLD_GROWTH, HOLD_MAX_MS};

/// Counters of one shard whose rollup is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The longest waiting first, each with the time at which it fell due (Unix ms).
    pub counters: Vec<(CounterName, u64)>,
    /// When the next one falls due (Unix ms); `None`: no counter is dirty.
    pub next_ms: Option<u64>,
    /// The store's time (Unix ms).
    pub now_ms: u64,
    /// How many counters of this shard are dirty, due or not.
    pub dirty: u64,
}

/// What the trigger needs of the log.
pub trait RollupSchedule: Send + Sync {
    /// Up to `limit` counters of one shard whose rollup is due, and when the next one is. Those that it returns fall due
    /// again after `hold_ms` unless a rollup settles them first: the caller may die before it has made a job of them. Each
    /// further hold of the same counter is [`HOLD_GROWTH`] times as long, up to [`HOLD_MAX_MS`], until a rollup: the
    /// counter has a job, and waits only because no worker has executed it.
    fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> impl Future<Output = Result<Due, Refusal>> + Send;

    /// These counters of one shard, which `due` has returned, got no job: the queue refused it. They fall due again after
    /// `delay_ms`, as if `due` had not returned them. A counter that is not dirty stays so.
    fn defer(
        &self,
        shard: u16,
        counters: &[CounterName],
        delay_ms: u64,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// A client has read these counters (N11). What is pending of them falls due as soon as it can be sealed; with
    /// `true`, a counter with nothing pending falls due at once. Returns whether a counter now falls due sooner.
    fn touch(&self, touched: &[(CounterName, bool)]) -> impl Future<Output = Result<bool, Refusal>> + Send;
}
