//! The event log of a namespace: what was added, when, and by which token (N3, N5).
//!
//! What lives here: the contract of the log as three traits, each what one kind of caller needs. [`Events`] takes events
//! and reads them back (the service), [`RollupLog`] sums them (rollups and accurate reads), [`RollupSchedule`] says which
//! rollups are due (the trigger); `labels`, what an add says of itself; `page`, one page of a read. What may not: an implementation. There are two,
//! [`redis`](crate::redis) and the [`oracle`](crate::oracle); the property tests compare their replies.
//!
//! Rules that all of them share:
//! - The log has [`SHARDS`](crate::namespace::SHARDS) shards. The events of one counter are spread over `buckets_per_id`
//!   of them by a hash of counter and token, so the same event always goes to the same shard. A call that concerns
//!   several shards is atomic in each shard, not over all of them.
//! - Limits follow the store's time. Each shard has *fences*, which never go back, whatever the store's clock does: to
//!   where it is sealed, the latest event that it refused as too old, the latest time that a tick has shown.
//! - Time is cut into windows of [`WINDOW_MS`]. The log keeps sums by window, and a seal falls on a window's bound.
//! - A shard follows one revision of its namespace. A call of any other revision fails with
//!   [`Refusal::Stale`](crate::Refusal::Stale) and changes nothing.

mod events;
mod labels;
mod page;
mod rollup_log;
mod schedule;

pub(crate) use events::untimed;
pub use events::{Appended, Bounds, Change, Event, EventScan, Events, NewEvent, Unlogged, with_archived};
pub use labels::Labels;
pub(crate) use page::{PAGE_EVENTS_MAX, read_page};
pub use rollup_log::{Closed, Pending, RollupLog, Sealed, Settlement, Window};
pub use schedule::{Due, RollupSchedule};
pub use tallystone_lua::counter::WINDOW_MS;
