//! The calls of one verb, and the recipients of their results.

use super::cost::Load;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::store::Items;
use tallystone_serving::RoomPlace;
use tokio::sync::oneshot;

/// Identifies a subscription among those of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionId(u64);

impl SubscriptionId {
    pub(super) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        SubscriptionId(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// The items of one caller for one verb.
pub(crate) struct Call<I, O> {
    /// At least one, at most [`BATCH_ITEMS_MAX`](tallystone_model::limits::BATCH_ITEMS_MAX).
    pub(crate) items: Vec<I>,
    /// Their encoded size in bytes, where a limit applies to it (Enqueue); else 0.
    pub(crate) bytes: usize,
    /// Whether an Enqueue may create its queue without a template; else `false`.
    pub(crate) may_create: bool,
    /// Receives the results.
    pub(crate) recipient: Recipient<O>,
}

impl<I, O> Call<I, O> {
    /// A call of any verb but Enqueue.
    pub(super) fn of(items: Vec<I>, recipient: Recipient<O>) -> Self {
        Call { items, bytes: 0, may_create: false, recipient }
    }

    pub(super) fn load(&self) -> Load {
        Load { items: self.items.len(), bytes: self.bytes }
    }

    /// A call of a subscription; `None` without items.
    pub(super) fn of_subscription(id: SubscriptionId, items: Vec<I>) -> Option<Self> {
        (!items.is_empty()).then_some(Call::of(items, Recipient::Subscription(id)))
    }
}

/// Where the results of a call go.
pub(crate) enum Recipient<O> {
    /// To a unary call. Its items keep their place until it has the results.
    Caller(oneshot::Sender<Items<O>>, Option<RoomPlace>),
    /// To a subscription.
    Subscription(SubscriptionId),
    /// Nowhere: the server itself releases leases that no caller took.
    Discard,
}

impl<O> Recipient<O> {
    /// The unary caller has disconnected: its call need not be executed. What a subscription has submitted is executed even
    /// if the subscription has closed since.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Recipient::Caller(caller, _) if caller.is_closed())
    }
}
