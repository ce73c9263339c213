//! `[rollup_worker]`

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// `[rollup_worker]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollupWorkerConfig {
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The queue that the worker takes rollups from.
    pub queue_url: String,
}

impl Default for RollupWorkerConfig {
    fn default() -> Self {
        RollupWorkerConfig { metrics_listen: None, queue_url: "http://127.0.0.1:7600".to_owned() }
    }
}
