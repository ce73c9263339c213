//! The view counter: views over HTTP, each pair of video and user counted once in its window (V1 to V6).
//!
//! What lives here: the windows (`dedupe`), without I/O; the log of views on Redis (`log`) or on Kafka (`kafka`), as which
//! callers see it is in `appends`; what is in memory of a partition (`counting`); the owner of a partition on Redis, which
//! deduplicates views and sends what they add to the counters (`owner`); what callers use: `ingest`, `reads`, and over them
//! `service` and `api` (HTTP); and the points at which a test ends the process (`steps`). What may not: how counters count.

pub mod api;
mod appends;
mod config;
mod counting;
pub mod dedupe;
mod ingest;
pub mod kafka;
mod kind;
pub mod log;
mod metrics;
mod owner;
mod reads;
mod refusal;
mod service;
mod steps;
mod view;

pub use config::{DEFAULT_NAMESPACE, ViewNamespace, ViewsConfig, WindowKind};
pub use owner::counts_config;
pub use refusal::Refusal;
pub use service::{Counts, KafkaTasks, PartitionTask, ViewService};
pub use steps::StepObserver;
pub use view::{USER_BYTES_MAX, VIDEO_BYTES_MAX, View};
