//! `[outbox]`: what each queue shard keeps for history, and the relay that reads it.

use crate::store::{OutboxBound, OutboxFull};
use serde::{Deserialize, Serialize};
use tallystone_model::ConfigError;
use tallystone_model::limits::PAYLOAD_BYTES_MAX;

/// Events that a shard's outbox holds where no relay is configured.
const UNREAD_EVENTS_MAX: u64 = 100_000;

/// `[outbox]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutboxConfig {
    /// Events that the outbox of one queue shard holds while history does not take them (Q19). `None`: a million, or
    /// 100,000 where no relay is configured.
    pub events_max: Option<u64>,
    /// What happens at that bound. Without a relay the oldest events are always given up.
    pub full: OutboxFull,
    /// Bytes of each payload that history keeps; 0: none.
    pub payload_bytes_kept: u64,
    /// Internal queues (rollup/…) keep history, too.
    pub internal_queues: bool,
    /// Bytes of the payload of each errored message that history keeps, if `payload_bytes_kept` is less (Q22).
    pub errored_payload_bytes_kept: u64,
    /// How long the relay's leader lease lasts: when it is not renewed within, another server takes over.
    pub relay_leader_lease_ms: u64,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        OutboxConfig {
            events_max: None,
            full: OutboxFull::RefuseEnqueue,
            payload_bytes_kept: 0,
            internal_queues: false,
            errored_payload_bytes_kept: 4_096,
            relay_leader_lease_ms: 5_000,
        }
    }
}

impl OutboxConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(events_max) = self.events_max {
            ConfigError::unless_within("outbox.events_max", events_max, 1_000..=1_000_000_000)?;
        }
        let payload_bytes = self.payload_bytes_kept;
        ConfigError::unless_within("outbox.payload_bytes_kept", payload_bytes, 0..=PAYLOAD_BYTES_MAX as u64)?;
        let payload_bytes = self.errored_payload_bytes_kept;
        ConfigError::unless_within("outbox.errored_payload_bytes_kept", payload_bytes, 0..=PAYLOAD_BYTES_MAX as u64)?;
        ConfigError::unless_within("outbox.relay_leader_lease_ms", self.relay_leader_lease_ms, 1_000..=600_000)
    }

    /// The bound of each outbox. `has_relay`: whether a relay reads them. Where none does, refusing new messages would
    /// gain nothing: the oldest events go, and a relay that is added later finds the newest.
    pub fn bound(&self, has_relay: bool) -> OutboxBound {
        let default = if has_relay { u64::from(OutboxBound::default().events_max) } else { UNREAD_EVENTS_MAX };
        OutboxBound {
            events_max: self.events_max.unwrap_or(default) as u32,
            full: if has_relay { self.full } else { OutboxFull::GiveUpHistory },
            payload_bytes_kept: self.payload_bytes_kept as u16,
            internal_queues: self.internal_queues,
            errored_payload_bytes_kept: self.errored_payload_bytes_kept as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(OutboxConfig::default().check(), Ok(()));
        for (field, config) in [
            ("outbox.events_max", OutboxConfig { events_max: Some(1), ..OutboxConfig::default() }),
            ("outbox.payload_bytes_kept", OutboxConfig { payload_bytes_kept: 1 << 30, ..OutboxConfig::default() }),
            (
                "outbox.errored_payload_bytes_kept",
                OutboxConfig { errored_payload_bytes_kept: 1 << 30, ..OutboxConfig::default() },
            ),
            ("outbox.relay_leader_lease_ms", OutboxConfig { relay_leader_lease_ms: 0, ..OutboxConfig::default() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn q19_without_a_relay_the_oldest_events_go() {
        let config = OutboxConfig::default();
        let expected = OutboxBound { errored_payload_bytes_kept: 4_096, ..OutboxBound::default() };
        assert_eq!(config.bound(true), expected);
        let unread = config.bound(false);
        assert_eq!((unread.events_max, unread.full), (100_000, OutboxFull::GiveUpHistory));
    }
}
