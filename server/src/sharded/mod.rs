//! Queues with several shards (Q17): a store whose callers see whole queues. Where a verb takes a shard, the first one stands for the
//! queue; each other one, and the first one of a queue without others, is the shard itself.
//!
//! What lives here: `batch` (divides a call among shards), `enqueue`, `dequeue` (over `known`, what this server knows of each shard; `all_known` of all queues), `cursor`
//! (walks), `one_queue` (one call on one shard), `layouts` (calls that had an earlier layout in mind), `silence` (shards that do not
//! answer, and what is `found` there), `surplus` (leases of one request in several shards), `by_id` (which shard a message is in), `store`, `verbs` and `traits` (the store, its verbs, and what
//! background jobs need of it). What may not: what happens within a shard (the inner store), and waiting (`engine/`).
//!
//! A queue with one shard costs a search in a map here.

mod all_known;
mod batch;
mod by_id;
mod cursor;
mod dequeue;
mod enqueue;
mod found;
mod known;
mod layouts;
mod one_queue;
mod silence;
mod store;
mod surplus;
mod traits;
mod verbs;

#[cfg(test)]
mod tests;

pub use store::Sharded;
