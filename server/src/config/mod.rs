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
use tallystone_serving::{Listen, WaitingBounds};

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
    /// The most new messages that may wait for the store, in all queues together.
    pub waiting_items_max: u32,
    /// The same bound in bytes of memory.
    pub waiting_bytes_max: u32,
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
            waiting_items_max: 100_000,
            waiting_bytes_max: 128 * 1_024 * 1_024,
            sweeper_leader_lease_ms: 5_000,
        }
    }
}

impl ServerConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("server")?;
        ConfigError::unless_within("server.metrics_queues_max", self.metrics_queues_max, 0..=10_000)?;
        // A call has at most a thousand messages.
        let (items, bytes) = (1_000..=10_000_000, 8_388_608..=1_073_741_824);
        ConfigError::unless_within("server.waiting_items_max", self.waiting_items_max.into(), items)?;
        ConfigError::unless_within("server.waiting_bytes_max", self.waiting_bytes_max.into(), bytes)?;
        let lease_ms = self.sweeper_leader_lease_ms;
        ConfigError::unless_within("server.sweeper_leader_lease_ms", lease_ms, 1_000..=600_000)
    }

    /// The bounds on the messages that wait for the store.
    pub fn waiting(&self) -> WaitingBounds {
        WaitingBounds { items_max: self.waiting_items_max as usize, bytes_max: self.waiting_bytes_max as usize }
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
            ("server.waiting_items_max", ServerConfig { waiting_items_max: 999, ..ServerConfig::default() }),
            ("server.waiting_bytes_max", ServerConfig { waiting_bytes_max: 1_000, ..ServerConfig::default() }),
            ("server.sweeper_leader_lease_ms", ServerConfig { sweeper_leader_lease_ms: 0, ..ServerConfig::default() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
