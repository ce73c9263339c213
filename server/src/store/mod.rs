//! The store on Redis: every verb of [`Store`](tallystone_model::Store) is one script call, atomic and durable before
//! the caller gets its answer.
//!
//! What lives here: the connection (`redis_store`), the lists over all partitions (`partitions`), the verbs on whole queues (`whole`, with the `copies` of their configurations, and the `spreads` of those whose number of shards was changed), what every verb shares (`shared`: the cached configuration, the call
//! of a script), the verbs (`verbs`, over `queues`, `changes`, `selection`, `reads` and `dequeue`), filter indexes (`indexes`),
//! wake-ups between servers (`wake`) and their marks (`marks`), the leader leases of background jobs (`leader`), the reading of outboxes (`outboxes`, over a `reader` of each partition), the decoding of replies (`reply`). What may
//! not: rules of the queue (the scripts), combining and waiting (`engine/`), the wire (`api/`).

mod bound;
mod changes;
mod copies;
mod dequeue;
mod entry;
mod indexes;
mod leader;
mod left;
mod marks;
mod options;
mod outboxes;
mod pace;
mod partitions;
mod queues;
mod reader;
mod reads;
mod redis_store;
mod reply;
mod reservations;
mod selection;
mod shared;
mod spreads;
mod stored;
mod strays;
mod undeclared;
mod verbs;
mod view;
mod wake;
mod whole;

pub use bound::{OutboxBound, OutboxFull};
pub use leader::LeaseAnswers;
pub use marks::Kept;
pub use options::RedisOptions;
pub use outboxes::OutboxReader;
pub use reader::Read;
pub use redis_store::RedisStore;
pub use tallystone_link::{Clock, ConnectError, ReplicaWait};
