//! `[[tenants]]`: what all queues of one tenant together may take (S5).

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tallystone_model::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_model::{ConfigError, QueueName};

const TENANTS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 64;

/// A tenant is the queues whose names begin with its prefix. A key that is left out is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The name in refusals and metrics.
    pub name: String,
    /// Its queues are those whose names begin so.
    pub prefix: String,
    /// Queues.
    pub queues_max: Option<u64>,
    /// Messages that the store keeps, in all states.
    pub messages_max: Option<u64>,
    /// Bytes of Redis's memory for the contents of the messages, as Redis estimates it from samples.
    pub bytes_max: Option<u64>,
    /// Declared indexes.
    pub indexes_max: Option<u64>,
    /// New messages per second through one server.
    pub enqueue_per_s: Option<u32>,
    /// Calls per second through one server; those that end or extend leases do not count.
    pub calls_per_s: Option<u32>,
    /// Dequeues that wait at one server.
    pub waiters_max: Option<u32>,
    /// Subscriptions of Work streams at one server.
    pub subscriptions_max: Option<u32>,
    /// The longest lease that a queue, a message or a worker may set.
    pub lease_ms_max: Option<u64>,
}

/// All tenants. Their prefixes do not overlap, so a queue has one tenant at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantConfigs(pub Vec<TenantConfig>);

impl TenantConfigs {
    /// Checks every tenant; the error names the first bad field.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.0.len() > TENANTS_MAX {
            let why = format!("has {} entries; the maximum is {TENANTS_MAX}", self.0.len());
            return Err(ConfigError::new("tenants", why));
        }
        let mut names = BTreeSet::new();
        for (i, tenant) in self.0.iter().enumerate() {
            tenant.check(i)?;
            if !names.insert(&tenant.name) {
                return Err(ConfigError::new(format!("tenants[{i}].name"), format!("{:?} occurs twice", tenant.name)));
            }
        }
        // In order, a prefix of others comes right before the first of them.
        let mut sorted: Vec<_> = self.0.iter().enumerate().collect();
        sorted.sort_by(|a, b| (&a.1.prefix, a.0).cmp(&(&b.1.prefix, b.0)));
        match sorted.windows(2).find(|pair| pair[1].1.prefix.starts_with(&pair[0].1.prefix)) {
            Some([(_, outer), (i, inner)]) => {
                let why = format!("{:?} begins with {:?}, the prefix of {:?}", inner.prefix, outer.prefix, outer.name);
                Err(ConfigError::new(format!("tenants[{i}].prefix"), why))
            }
            _ => Ok(()),
        }
    }
}

impl TenantConfig {
    fn check(&self, i: usize) -> Result<(), ConfigError> {
        let field = |name: &str| format!("tenants[{i}].{name}");
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !self.name.chars().all(is_name) {
            let why = format!("is {:?}; must be 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -", self.name);
            return Err(ConfigError::new(field("name"), why));
        }
        let prefix = QueueName::parse("prefix", &self.prefix);
        let prefix = prefix.map_err(|refusal| ConfigError::new(field("prefix"), refusal.to_string()))?;
        if prefix.is_internal() || INTERNAL_QUEUES.starts_with(prefix.as_str()) {
            let why = format!("{:?} takes in the queues of rollup jobs, which have no tenant", self.prefix);
            return Err(ConfigError::new(field("prefix"), why));
        }
        for (name, value) in [
            ("queues_max", self.queues_max),
            ("messages_max", self.messages_max),
            ("bytes_max", self.bytes_max),
            ("indexes_max", self.indexes_max),
        ] {
            if let Some(value) = value {
                ConfigError::unless_within(&field(name), value, 0..=1 << 53)?;
            }
        }
        for (name, value, min) in [
            ("enqueue_per_s", self.enqueue_per_s, 1),
            ("calls_per_s", self.calls_per_s, 1),
            ("waiters_max", self.waiters_max, 0),
            ("subscriptions_max", self.subscriptions_max, 0),
        ] {
            if let Some(value) = value {
                ConfigError::unless_within(&field(name), value.into(), min..=1_000_000)?;
            }
        }
        match self.lease_ms_max {
            Some(value) => ConfigError::unless_within(&field("lease_ms_max"), value, LEASE_MS_MIN..=LEASE_MS_MAX),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, prefix: &str) -> TenantConfig {
        TenantConfig { name: name.to_owned(), prefix: prefix.to_owned(), ..TenantConfig::default() }
    }

    #[test]
    fn s5_each_bad_field_is_named() {
        let good = || tenant("a", "a/");
        for (field, tenants) in [
            ("tenants[0].name", vec![tenant("", "a")]),
            ("tenants[0].name", vec![tenant("a b", "a")]),
            ("tenants[1].name", vec![good(), tenant("a", "b/")]),
            ("tenants[0].prefix", vec![tenant("a", "")]),
            ("tenants[0].prefix", vec![tenant("a", "a b")]),
            ("tenants[0].prefix", vec![tenant("a", "roll")]),
            ("tenants[0].prefix", vec![tenant("a", "rollup/x")]),
            ("tenants[1].prefix", vec![good(), tenant("b", "a/")]),
            ("tenants[2].prefix", vec![good(), tenant("c", "a0"), tenant("b", "a/b")]),
            ("tenants[0].prefix", vec![tenant("b", "a/b"), good()]),
            ("tenants[0].enqueue_per_s", vec![TenantConfig { enqueue_per_s: Some(0), ..good() }]),
            ("tenants[0].messages_max", vec![TenantConfig { messages_max: Some(u64::MAX), ..good() }]),
            ("tenants[0].lease_ms_max", vec![TenantConfig { lease_ms_max: Some(0), ..good() }]),
        ] {
            assert_eq!(TenantConfigs(tenants).check().unwrap_err().field, field);
        }
        let overlapping = vec![tenant("a", "a/"), tenant("b", "a"), tenant("c", "c")];
        assert!(TenantConfigs(overlapping).check().is_err());
        assert_eq!(TenantConfigs(vec![good(), tenant("b", "a-"), tenant("c", "a0/")]).check(), Ok(()));
    }
}
