//! All tenants, and which of them a queue has.

use super::source::KeptMessages;
use super::tenant::{BYTES, MESSAGES, QUEUES, REFUSED, Tenant};
use crate::config::TenantConfigs;
use metrics::{Unit, describe_counter, describe_gauge};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tallystone_model::{QueueName, Refusal};

/// All tenants of a server, by their prefixes, none of which begins with another one.
#[derive(Default)]
pub(crate) struct Tenants {
    by_prefix: BTreeMap<String, Arc<Tenant>>,
}

impl Tenants {
    /// The tenants of a configuration that was checked.
    pub(crate) fn new<S: KeptMessages>(configs: &TenantConfigs, store: &Arc<S>) -> Tenants {
        if !configs.0.is_empty() {
            describe_counter!(REFUSED, "calls, messages and extensions that this server refused, by tenant and quota");
            describe_gauge!(
                QUEUES,
                "queues of the tenant when this server last compared its messages with their bounds"
            );
            describe_gauge!(MESSAGES, "messages of the tenant in all states, at the same time");
            describe_gauge!(
                BYTES,
                Unit::Bytes,
                "bytes of these messages' contents, as Redis estimates them; only with bytes_max"
            );
        }
        let tenant =
            |config: &crate::config::TenantConfig| (config.prefix.clone(), Tenant::new(config.clone(), store.clone()));
        Tenants { by_prefix: configs.0.iter().map(tenant).collect() }
    }

    /// The tenant of a queue.
    pub(crate) fn of(&self, queue: &QueueName) -> Option<&Arc<Tenant>> {
        self.of_name(queue.as_str())
    }

    /// The tenant of what may be the name of a queue.
    fn of_name(&self, name: &str) -> Option<&Arc<Tenant>> {
        // Between a prefix and a name that begins with it there are only texts that begin with it too.
        let (prefix, tenant) = self.by_prefix.range::<str, _>((Bound::Unbounded, Bound::Included(name))).next_back()?;
        name.starts_with(prefix).then_some(tenant)
    }

    /// Counts a call on what may be the name of a queue.
    pub(crate) fn take_call(&self, name: &str) -> Result<(), Refusal> {
        self.of_name(name).map_or(Ok(()), |tenant| tenant.take_call())
    }

    /// Checks a lease of this many ms on this queue; `None`: the queue's own length.
    pub(crate) fn check_lease(&self, queue: &QueueName, lease_ms: Option<u64>) -> Result<(), Refusal> {
        self.of(queue).map_or(Ok(()), |tenant| tenant.check_lease(lease_ms))
    }
}
