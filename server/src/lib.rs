//! The queue service: gRPC at the edge (`api`), combining and waiting in the middle (`engine`), a store at the end.
//!
//! What lives here: the service and its configuration, the sweeper, the relay, metrics and health, the Redis store. What
//! may not: the rules of the queue (tallystone-model), ports (tallystone-serving), and anything a client needs.

pub mod config;
pub mod outbox;
pub mod store;

mod again;
mod api;
mod attach;
mod engine;
mod health;
mod metrics;
mod queue_metrics;
mod schedule;
mod sharded;
mod sweeper;
mod tenants;
#[cfg(test)]
mod testing;

pub use attach::{attach_queue, attach_redis_queue, attach_relay};
pub use config::{
    CreateOnEnqueue, OutboxConfig, QueueTemplate, QueueTemplates, ServerConfig, TenantConfig, TenantConfigs,
};
pub use metrics::BUCKETS;
pub use queue_metrics::{QueueState, QueueStates};
pub use sharded::Sharded;
pub use sweeper::{LeaderLease, SweepTime, SweepTimes};
pub use tenants::KeptMessages;
