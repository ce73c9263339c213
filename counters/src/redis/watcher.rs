//! Follows the registry: a server and a worker both serve every namespace in its latest revision.

use super::namespace::Namespace;
use super::namespaces::RedisNamespaces;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, interval};

/// The time between two polls.
pub(crate) const POLL_EVERY: Duration = Duration::from_secs(1);
/// The time between two log lines about the same outage.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// Polls the registry.
pub struct NamespaceWatcher {
    namespaces: RedisNamespaces,
    every: Interval,
    /// The last log line about polls that fail; `None`: they succeed.
    failing: Option<Instant>,
}

impl NamespaceWatcher {
    /// The first poll comes at once.
    pub fn new(namespaces: RedisNamespaces) -> NamespaceWatcher {
        NamespaceWatcher { namespaces, every: interval(POLL_EVERY), failing: None }
    }

    /// All namespaces, a second after the last poll, or as soon as `now` is notified. An outage is logged
    /// when it begins, once a minute, and when it ends.
    pub async fn next(&mut self, now: &Notify) -> Vec<Namespace> {
        loop {
            tokio::select! {
                _ = self.every.tick() => {}
                () = now.notified() => {}
            }
            match self.namespaces.all().await {
                Ok(all) => {
                    if self.failing.take().is_some() {
                        tracing::info!("the registry of namespaces can be read again");
                    }
                    return all;
                }
                Err(error) if self.failing.is_none_or(|logged| logged.elapsed() >= REPEAT_AFTER) => {
                    self.failing = Some(Instant::now());
                    tracing::warn!(%error, "cannot read the registry of namespaces; trying until it succeeds");
                }
                Err(error) => tracing::debug!(%error, "cannot read the registry of namespaces"),
            }
        }
    }
}
