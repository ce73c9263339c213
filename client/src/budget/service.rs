//! The calls of the service that a budget makes. Tests have another service.

use crate::counter::{Counted, CounterClient, IdempotencyToken, NewAdd};
use crate::error::Result;

/// The counter of a budget. No call is repeated: the budget must know of each attempt that has no answer.
pub(super) trait Service: Send + Sync + 'static {
    /// Adds the units if the count stays within the limit, and returns the count right after it.
    fn grant(&self, units: i64, limit: i64, token: &IdempotencyToken) -> impl Future<Output = Result<i64>> + Send;

    /// Subtracts the units if the count stays at least this.
    fn give_back(&self, units: i64, least: i64, token: &IdempotencyToken) -> impl Future<Output = Result<()>> + Send;

    fn count(&self) -> impl Future<Output = Result<Counted>> + Send;
}

pub(super) struct Remote {
    client: CounterClient,
    namespace: String,
    counter: String,
}

impl Remote {
    pub(super) fn new(client: &CounterClient, namespace: &str, counter: &str) -> Remote {
        Remote { client: client.once(), namespace: namespace.to_owned(), counter: counter.to_owned() }
    }

    fn add(&self, delta: i64, token: &IdempotencyToken) -> NewAdd {
        NewAdd::new(self.counter.clone(), delta).token(token.clone())
    }
}

impl Service for Remote {
    async fn grant(&self, units: i64, limit: i64, token: &IdempotencyToken) -> Result<i64> {
        let add = self.add(units, token).max(limit);
        self.client.add_and_get(&self.namespace, add).await.map(|added| added.count)
    }

    async fn give_back(&self, units: i64, least: i64, token: &IdempotencyToken) -> Result<()> {
        let add = self.add(-units, token).min(least);
        self.client.add(&self.namespace, add).await.map(drop)
    }

    async fn count(&self) -> Result<Counted> {
        self.client.get(&self.namespace, &self.counter).await
    }
}
