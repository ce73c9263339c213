//! What the lanes and the verbs of one server share.

use super::fair_queue::FairQueue;
use super::places::WaitLimits;
use super::rooms::Rooms;
use crate::config::{CreateOnEnqueue, QueueTemplates};
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::queue_metrics::Board;
use crate::schedule::Schedule;
use crate::tenants::Tenants;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The parts that the lanes and the verbs of one server share.
pub(crate) struct Context<S> {
    pub(crate) store: Arc<S>,
    pub(crate) templates: QueueTemplates,
    pub(crate) create_on_enqueue: CreateOnEnqueue,
    pub(crate) sweeper: Arc<Schedule>,
    pub(crate) health: StoreHealth,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) queues: Arc<Board>,
    pub(crate) wait_limits: WaitLimits,
    /// The calls of one stream of Enqueues that may have no answer.
    pub(crate) enqueue_stream_calls_max: u32,
    pub(crate) fair_queue: FairQueue,
    /// The bounds on what waits for the store, in all queues together.
    pub(crate) rooms: Rooms,
    pub(crate) tenants: Tenants,
    /// Cancelled when the server stops.
    pub(crate) stopping: CancellationToken,
}
