//! The meaning of the queue, as plain values and functions: no I/O, no clock, no async runtime.
//!
//! What lives here: names and their limits, the six states and the one table of transitions, queue
//! configuration, the [`Store`] contract, the facts behind Explain, the invariants by number, and the
//! [`oracle`], an in-memory store that is the executable meaning of the contract.
//! What may not: code that uses Redis, gRPC, tokio or a wall clock.

mod causes;
pub mod config;
mod config_error;
pub mod drawing;
pub mod event;
pub mod explain;
pub mod fencing;
pub mod filter;
pub mod invariants;
pub mod limits;
pub mod message;
pub mod names;
pub mod oracle;
pub mod priority_class;
pub mod refusal;
pub mod secret;
pub mod selection;
pub mod shard;
pub mod state;
pub mod store;

pub use causes::with_causes;
pub use config::{Backoff, BackoffKind, QueueConfig, QueuePatch, QueueType};
pub use config_error::ConfigError;
pub use event::{Event, Loss, Recorded, Sink, SinkError};
pub use filter::{Filter, IndexKeys};
pub use message::{Lease, Message, NewMessage};
pub use names::{MessageId, Metadata, QueueName};
pub use priority_class::{PriorityClass, PriorityClasses};
pub use refusal::{Applied, Refusal, Resource};
pub use secret::{without_password, without_passwords};
pub use selection::{Change, ChangeCursor, ChangeRequest, ChangedPage, Selection};
pub use shard::{Generation, Layout, Shard, Spread};
pub use state::{Cause, State};
pub use store::Store;
