//! Idle namespaces wait here: a namespace without dirty counters is not polled shard by shard. A server checks all of them
//! together (Q18).

use super::gather::{Gather, Pace};
use crate::names::NamespaceName;
use crate::redis::RedisNamespaces;
use crate::refusal::Refusal;
use std::time::Duration;

/// Namespaces that are checked within this time are checked together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Checks whether idle namespaces have become dirty.
pub(super) struct IdleNamespaces(Gather<NamespaceName, Result<bool, Refusal>>);

impl IdleNamespaces {
    pub(super) fn new(namespaces: RedisNamespaces) -> IdleNamespaces {
        let pace = Pace { wait: TOGETHER, in_flight: 1 };
        IdleNamespaces(Gather::start(pace, move |names: Vec<NamespaceName>| {
            let namespaces = namespaces.clone();
            async move {
                match namespaces.have_dirty(&names).await {
                    Ok(have) => have.into_iter().map(Ok).collect(),
                    Err(refusal) => names.iter().map(|_| Err(refusal.clone())).collect(),
                }
            }
        }))
    }

    /// Whether the namespace still has no dirty counter. An error counts as no: the caller's poll will show it.
    pub(super) async fn is_idle(&self, namespace: &NamespaceName) -> bool {
        self.0.call(vec![namespace.clone()]).await.first() == Some(&Ok(false))
    }
}
