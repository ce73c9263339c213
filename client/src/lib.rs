//! The Rust client of Tallystone, a priority work queue and exact distributed counters: typed calls ([`Client`]), the
//! worker runtime ([`Worker`]), and the calls of counters ([`CounterClient`]).
//!
//! ```no_run
//! use tallystone_client::{Client, Failure, Lease, NewMessage, QueueConfig, Worker};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect("http://127.0.0.1:7600").await?;
//!
//!     // One parcel per address at a time; the most urgent first.
//!     client.create_queue("parcels", QueueConfig::exclusive("address")).await?;
//!     let parcel = NewMessage::new("parcel-1", "a book")
//!         .priority(1_767_225_600_000) // the deadline, Unix ms: lower runs first
//!         .metadata("address", "Elm Street 1");
//!     for result in client.enqueue("parcels", vec![parcel]).await? {
//!         println!("accepted {}", result?.id);
//!     }
//!
//!     let worker = Worker::new(client, "parcels").concurrency(8);
//!     let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
//!     let stats = worker.run_until(stop, deliver).await?;
//!     println!("{} delivered", stats.completed);
//!     Ok(())
//! }
//!
//! async fn deliver(parcel: Lease) -> Result<(), Failure> {
//!     println!("{}: {:?} to {}", parcel.id, parcel.payload, parcel.metadata["address"]);
//!     Ok(())
//! }
//! ```
//!
//! The same, complete: `cargo run --release -p tallystone-client --example hello`.
//!
//! # Calls
//! Of queues: every call of the hot path takes a list and answers a list of the same length and order: a `Result` of the whole
//! call around a `Result` per item ([`Items`]). One refused item never spoils the others. Times are Unix milliseconds by
//! the store's clock, durations milliseconds, and say so in their names.
//!
//! # Every call can be repeated
//! A call whose answer was lost may or may not have happened. Here that needs no thought: repeated, it answers the
//! same and changes nothing more. The client relies on it, and so may you.
//! - Enqueue: by message id. The same id with the same content is the same message; with other content it is refused
//!   (`ID_CONFLICT`). [`NewMessage::unnamed`] draws the id once, before the first attempt.
//! - Dequeue and ExtendLease: by a request id, which the client draws once per call.
//! - Complete, Release, Cancel: by the lease, of which the store remembers how it ended.
//! - The operator's calls set a state rather than change it by an amount.
//! - Counters: by a token with its time, which the client draws once per add where none is given
//!   ([`CounterClient`] says what that means, and what it cannot mean for best-effort counters).
//!
//! So a call that finds the server unavailable is repeated with jittered exponential backoff, for
//! [`retry_for`](ClientBuilder::retry_for) in all.
//!
//! # Errors
//! [`Error::Refused`] is the server's answer, the call changed nothing: [`Refused`] has a reason for programs, a
//! sentence for people, and the field at fault. [`Error::Unavailable`] means that no answer came in all that time, and says
//! whether the write certainly did not happen. Nothing here panics on what a server sends.
//!
//! # Leases and fencing
//! A leased message is one worker's to run until the lease ends: by Complete or Release, or because its time ran out. Then
//! it is leased to another, which in an exclusive queue also means that the next message of the same value may run.
//!
//! No clock can stop a worker that is paused (by a debugger, the scheduler, a slow disk) from going on after its
//! lease has ended. Tallystone refuses its results: every lease carries a [fencing
//! token](Lease::fencing_token), higher than that of any lease before, and a call with an old one answers `LEASE_LOST`
//! and changes nothing. Whatever *else* the work writes to should do the same: pass the token on, and let the other
//! side refuse a lower token than the highest it has seen.

// What lives here: the client's types, one method per RPC, and the worker runtime, over the generated code of
// tallystone-proto. What may not: anything of the server, the store, or their domain types.
mod admin;
mod client;
mod config;
mod connection;
mod connector;
mod counter;
mod error;
mod history;
mod inspect;
mod lease;
mod message;
mod queue;
mod worker;

pub use client::Client;
pub use config::{Backoff, BackoffKind, QueueConfig, QueueInfo, QueueType};
pub use connection::ClientBuilder;
pub use connector::connector;
pub use counter::{
    Added, AddedAndCounted, Cardinality, Cleared, Counted, CounterClient, CounterEntry, CounterEvent, CounterType,
    IdempotencyToken, Namespace, NamespaceConfig, NewAdd, NewClear,
};
pub use error::{Applied, Error, Items, Refused, Result};
pub use history::{
    Activity, Found, Gap, IndexedMessage, QueueStats, ReasonCount, Search, StateActivity, Trace, TracedTransition,
    Watermark,
};
pub use inspect::{
    CheckStep, Depth, Explanation, Hindrance, HindranceKind, Message, MessagePatch, Page, Purged, QueueSummary,
    Violation,
};
pub use lease::{Cancellation, Dequeue, Extended, Extension, Lease, LeaseRef, Release, Transition};
pub use message::{Enqueued, Filter, NewMessage, State};
pub use tonic::Code;
pub use worker::{Failure, Lost, Outcome, Worker, WorkerStats};
