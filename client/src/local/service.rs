//! The calls of the service that local counters make. Tests have another service.

use crate::counter::{Added, Counted, CounterClient, NewAdd};
use crate::error::Items;

/// The counters of a cluster. Both calls take at most [`CALL_MAX`] counters.
pub(super) trait Service: Send + Sync + 'static {
    fn add(&self, namespace: &str, adds: Vec<NewAdd>) -> impl Future<Output = Items<Added>> + Send;

    fn get(&self, namespace: &str, counters: Vec<String>) -> impl Future<Output = Items<Counted>> + Send;
}

/// Counters of one call: what the service accepts.
pub(super) const CALL_MAX: usize = 1_000;

impl Service for CounterClient {
    async fn add(&self, namespace: &str, adds: Vec<NewAdd>) -> Items<Added> {
        self.add_many(namespace, adds).await
    }

    async fn get(&self, namespace: &str, counters: Vec<String>) -> Items<Counted> {
        self.get_many(namespace, counters).await
    }
}
