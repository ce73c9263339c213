//! Quotas of tenants: what all queues whose names begin with one prefix together may take (S5, docs/decisions/0074).
//!
//! What lives here: `book` (which tenant a queue has), `tenant` (its quotas), `admission` (the messages of one Enqueue),
//! `stock` (how much the store keeps for it), `rate`, `source` (what is read of the store). What may not: the bounds that
//! apply without a configuration, which are in the engine and in tallystone-serving.

mod admission;
mod book;
mod rate;
mod source;
mod stock;
mod tenant;

pub(crate) use book::Tenants;
pub use source::KeptMessages;
pub(crate) use tenant::{Creating, Taken, Tenant};
