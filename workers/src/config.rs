//! `[rollup_worker]`

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_counters::check_queue_url;
use tallystone_model::ConfigError;

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

impl RollupWorkerConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_queue_url("rollup_worker.queue_url", &self.queue_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let config = RollupWorkerConfig::default();
        assert_eq!(config.check(), Ok(()));
        let bad = RollupWorkerConfig { queue_url: "ftp://queue".to_owned(), ..config };
        assert_eq!(bad.check().unwrap_err().field, "rollup_worker.queue_url");
    }
}
