//! Whether the store answers, judged by the calls of this server; shown by the gRPC health service.

use tallystone_model::Refusal;
use tokio::sync::watch;

/// Whether the last call reached the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreHealth(watch::Sender<bool>);

impl StoreHealth {
    /// Available, until a call fails.
    pub(crate) fn new() -> Self {
        StoreHealth(watch::Sender::new(true))
    }

    /// Records how a call of the store ended.
    pub(crate) fn saw<T>(&self, answer: &Result<T, Refusal>) {
        let available =
            !matches!(answer, Err(refusal) if refusal.is_unavailable() || matches!(refusal, Refusal::DataLoss { .. }));
        self.0.send_if_modified(|before| std::mem::replace(before, available) != available);
    }

    /// The current state, and every change of it.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
