//! The Rust client of Tallystone, a priority work queue and exact distributed counters: typed calls ([`Client`]), the
//! worker runtime ([`Worker`]), and the calls of counters ([`CounterClient`]).
//!
//! ```no_run
//! use tallystone_client::{Client, Lease, NewMessage, QueueConfig, Worker};
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
//!     let pool = Pool;
//!     let worker = Worker::new(client, "parcels").concurrency(8);
//!     let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
//!     let deliver = async move |parcel: Lease| {
//!         println!("{}: {:?} to {}", parcel.id, parcel.payload, parcel.metadata["address"]);
//!         pool.save(&parcel.id, parcel.fencing_token).await?;
//!         Ok(())
//!     };
//!     let stats = worker.run_until(stop, deliver).await?;
//!     println!("{} delivered", stats.completed);
//!     Ok(())
//! }
//!
//! /// Stands for your database: whatever the handler captures can be cloned.
//! #[derive(Clone)]
//! struct Pool;
//!
//! impl Pool {
//!     async fn save(&self, parcel: &str, fencing_token: u64) -> std::io::Result<()> {
//!         println!("{parcel} is delivered, fencing token {fencing_token}");
//!         Ok(())
//!     }
//! }
//! ```
//!
//! A complete program is in `examples/first.rs`: `cargo run -p tallystone-client --example first`.
//!
//! # Calls
//! The calls of producers and workers take a list and return a list of the same length and order: a `Result` of the
//! whole call around a `Result` per item ([`Items`]). One refused item never spoils the others. Times are Unix
//! milliseconds by the store's clock, durations are milliseconds; their names end in `_ms`.
//!
//! Enqueues that are under way at the same time share a stream to the server, so that many callers with one message each cost
//! little more than one caller with many. Their results, deadlines and repetitions stay those of each call.
//!
//! # Every call can be repeated
//! When the answer of a call is lost, the call may or may not have taken effect. Repeating it is safe: the repetition
//! returns the same answer and changes nothing more. How the server recognizes a repetition:
//! - Enqueue: by message id. The same id with the same content is the same message; with other content it is refused
//!   (`ID_CONFLICT`). [`NewMessage::unnamed`] draws the id once, before the first attempt.
//! - Dequeue and ExtendLease: by a request id, which the client draws once per call.
//! - Complete, Release, Cancel: by the lease; the store remembers how it ended.
//! - The operator's calls set a value rather than change it by an amount.
//! - Counters: by a token and its time, which the client draws once per add if the caller gives none.
//!   [`CounterClient`] has the details, and the exception of best-effort counters.
//!
//! The client therefore repeats a call while the server is unavailable, with jittered exponential backoff, for
//! [`retry_for`](ClientBuilder::retry_for) in total. It also repeats a call that an overloaded server refused, after the time
//! that the refusal names. With [`hedge`](ClientBuilder::hedge) it sends a call a second time when the answer is late.
//!
//! # Errors
//! [`Error::Refused`]: the server refused the call, which changed nothing, unless [an earlier attempt](Refused::applied) has no answer.
//! [`Refused`] has a reason for programs, a sentence for people, and the field at fault. [`Error::Unavailable`]: no answer came within `retry_for`; it says
//! whether the write may have taken effect. No answer of a server makes this crate panic.
//!
//! # Leases and fencing
//! A lease gives one worker the right to run a message. It ends with Complete, Release or Cancel, or when it expires; an
//! expired message is leased to another worker. In an exclusive queue, the end of a lease also frees the message's
//! value, so the next message of that value may run.
//!
//! A worker can be paused by a debugger, the scheduler or a slow disk, and continue after its lease has expired. Tallystone
//! refuses its results: every lease carries a [fencing token](Lease::fencing_token) that is higher than that of any
//! earlier lease of the message, and a call with an older token is refused with `LEASE_LOST` and changes nothing. Other
//! systems that the work writes to should do the same: pass the token on, and let them refuse a token lower than the
//! highest that they have seen.

//!
//! # Traces
//! With the feature `telemetry`, unary calls carry the context of the caller's OpenTelemetry span, which a message takes along to its
//! worker. A [`Worker`] runs each handler in a span `process <queue>`, as a part of that trace. Spans go to the global tracer
//! provider that is installed when the worker starts.
//!
//! # Budgets
//! [`budget::Budget`] takes from a limit that many processes share, mostly without a call.
//!
//! # Local counters
//! With the feature `local`, on Unix, `local::LocalCounters` counts in this process and exchanges sums with the service at an interval.

// What lives here: the client's types, one method per RPC, and the worker runtime, on top of the generated code of
// tallystone-proto. What may not: code or types of the server and the store.
mod admin;
pub mod budget;
mod calls;
mod client;
pub mod compact;
mod config;
mod connection;
mod connector;
mod counter;
mod credentials;
mod enqueues;
mod error;
mod health;
mod hedge;
mod history;
mod indexed_depth;
mod inspect;
mod lease;
#[cfg(all(feature = "local", unix))]
pub mod local;
mod message;
mod outage;
mod queue;
mod repair;
mod selection;
mod servers;
mod shared_streams;
#[cfg(feature = "telemetry")]
mod trace;
mod wire;
mod work_connections;
mod worker;

pub use client::Client;
pub use config::{Backoff, BackoffKind, PriorityClasses, QueueConfig, QueueInfo, QueueType};
pub use connection::{ClientBuilder, FromConnections};
pub use connector::connect;
pub use counter::{
    Added, AddedAndCounted, Audit, AuditGroup, AuditGrouping, Cardinality, Cleared, Counted, CounterClient,
    CounterEntry, CounterEvent, CounterType, Crossing, CrossingDirection, Crossings, ExactTo, GlobalCount,
    IdempotencyToken, Namespace, NamespaceConfig, NewAdd, NewClear, NewRecount, Period, PeriodSum, PublishedTo,
    Recount, RegionCount, Sums, Threshold, TopCounters,
};
pub use error::{Applied, Error, Items, Refused, Result};
pub use health::HealthClient;
pub use hedge::Hedge;
pub use history::{
    Activity, Found, Gap, IndexedMessage, QueueStats, ReasonCount, Search, StateActivity, Trace, TracedTransition,
    Watermark,
};
pub use indexed_depth::{DepthGroup, DepthQuery, GroupBy, IndexedDepth, Loss, Queues};
pub use inspect::{
    Ages, Attempt, CheckStep, Depth, Explanation, Hindrance, HindranceKind, Message, MessagePatch, Page, Purged,
    QueueSummary, Violation,
};
pub use lease::{
    Cancellation, Completion, Dequeue, Extended, Extension, Lease, LeaseRef, Release, Transition, Verdict,
};
pub use message::{Enqueued, Filter, NewMessage, State};
pub use selection::{Change, ChangeRequest, ChangedPage, Selection};
pub use tonic::Code;
pub use worker::{Failure, Lost, Outcome, Success, Worker, WorkerStats};

/// The program in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
