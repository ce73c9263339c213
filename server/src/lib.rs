//! The queue service: gRPC at the edge (`api`), combining and waiting in the middle (`engine`), a store at the end.
//!
//! What lives here: the server and its configuration, the sweeper, metrics and health, the Redis store. What may
//! not: the meaning of the queue (that is tallystone-model's) and anything a client needs.

pub mod config;
pub mod outbox;
pub mod store;

mod apart;
mod api;
mod engine;
mod health;
mod metrics;
mod serve;
mod serve_only;
mod sweeper;
#[cfg(test)]
mod testing;

pub use config::{ConfigError, QueueTemplate, ServerConfig};
pub use serve::{Beside, BesideTask, ServeError, outbox_bound, redis_options, serve, serve_on, serve_redis};
pub use serve_only::{serve_metrics, serve_only};
pub use sweeper::LeaderLease;
