//! The sections of the configuration that belong to the queue's server: `[server]`, `[outbox]`, `[[queue_templates]]`,
//! `[[tenants]]`. Each checks itself before a port opens.

mod outbox;
mod templates;
mod tenants;

pub use outbox::OutboxConfig;
pub use templates::{CreateOnEnqueue, QueueTemplate, QueueTemplates};
pub use tenants::{TenantConfig, TenantConfigs};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_model::ConfigError;
use tallystone_serving::Listen;

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where gRPC is served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The most queues that have separate metrics; those of the others are summed up.
    pub metrics_queues_max: u64,
    /// Which queues an Enqueue creates.
    pub create_on_enqueue: CreateOnEnqueue,
    /// How long the sweeper's leader lease lasts: when it is not renewed within, another server takes over.
    pub sweeper_leader_lease_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7600)),
            metrics_listen: None,
            metrics_queues_max: 100,
            create_on_enqueue: CreateOnEnqueue::default(),
            sweeper_leader_lease_ms: 5_000,
        }
    }
}

impl ServerConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("server")?;
        ConfigError::unless_within("server.metrics_queues_max", self.metrics_queues_max, 0..=10_000)?;
        let lease_ms = self.sweeper_leader_lease_ms;
        ConfigError::unless_within("server.sweeper_leader_lease_ms", lease_ms, 1_000..=600_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(ServerConfig::default().check(), Ok(()));
        let here = ServerConfig::default().listen;
        for (field, config) in [
            ("server.metrics_listen", ServerConfig { metrics_listen: Some(here), ..ServerConfig::default() }),
            ("server.metrics_queues_max", ServerConfig { metrics_queues_max: 10_001, ..ServerConfig::default() }),
            ("server.sweeper_leader_lease_ms", ServerConfig { sweeper_leader_lease_ms: 0, ..ServerConfig::default() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
