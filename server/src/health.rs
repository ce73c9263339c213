//! Whether the store answers, as this server's own calls see it; shown by the gRPC health service.

use tallystone_model::Refusal;
use tokio::sync::watch;

/// What the last calls saw.
#[derive(Clone, Debug)]
pub(crate) struct StoreHealth(watch::Sender<bool>);

impl StoreHealth {
    /// Available, until a call says otherwise.
    pub(crate) fn new() -> Self {
        StoreHealth(watch::Sender::new(true))
    }

    /// Takes notice of how a call of the store went.
    pub(crate) fn saw<T>(&self, answer: &Result<T, Refusal>) {
        let available = !matches!(answer, Err(Refusal::Unavailable { .. }));
        self.0.send_if_modified(|before| std::mem::replace(before, available) != available);
    }

    /// The present state, and every change of it.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
