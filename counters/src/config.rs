//! `[counters]`

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_model::ConfigError;
use tallystone_serving::Listen;

/// `[counters]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountersConfig {
    /// Where gRPC and HTTP are served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The queue that hands rollups to the workers.
    pub queue_url: String,
}

impl Default for CountersConfig {
    fn default() -> Self {
        CountersConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7610)),
            metrics_listen: None,
            queue_url: "http://127.0.0.1:7600".to_owned(),
        }
    }
}

impl CountersConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("counters")
    }
}
