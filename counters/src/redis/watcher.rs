//! Follows the registry: a server and a worker both serve every namespace in its latest revision.

use super::namespaces::{Namespace, RedisNamespaces};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Interval, interval};

const POLL_EVERY: Duration = Duration::from_secs(1);

/// Polls the registry.
pub struct NamespaceWatcher {
    namespaces: RedisNamespaces,
    every: Interval,
}

impl NamespaceWatcher {
    /// The first poll comes at once.
    pub fn new(namespaces: RedisNamespaces) -> NamespaceWatcher {
        NamespaceWatcher { namespaces, every: interval(POLL_EVERY) }
    }

    /// All namespaces, a second after the last poll, or as soon as `now` is notified. A poll that fails is logged, and the
    /// next one follows.
    pub async fn next(&mut self, now: &Notify) -> Vec<Namespace> {
        loop {
            tokio::select! {
                _ = self.every.tick() => {}
                () = now.notified() => {}
            }
            match self.namespaces.all().await {
                Ok(all) => return all,
                Err(error) => tracing::warn!(%error, "cannot read the registry of namespaces"),
            }
        }
    }
}
