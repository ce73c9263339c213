//! `[counters]`

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_client::Client;
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
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("counters")?;
        check_queue_url("counters.queue_url", &self.queue_url)
    }
}

/// Checks the address of a queue; `field` names it in the error.
pub fn check_queue_url(field: &str, url: &str) -> Result<(), ConfigError> {
    Client::builder(url).check().map_err(|error| ConfigError::new(field, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let config = CountersConfig::default();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(CountersConfig { queue_url: "queue:7600".to_owned(), ..config.clone() }.check(), Ok(()));
        for (field, checked) in [
            (
                "counters.metrics_listen",
                CountersConfig { metrics_listen: Some(config.listen), ..config.clone() }.check(),
            ),
            ("counters.queue_url", CountersConfig { queue_url: "ftp://queue".to_owned(), ..config.clone() }.check()),
            ("counters.queue_url", CountersConfig { queue_url: String::new(), ..config }.check()),
        ] {
            assert_eq!(checked.unwrap_err().field, field);
        }
    }
}
