//! Notifications between servers: every server subscribes to one channel. A script publishes the shard's name if it makes
//! a message runnable for which another server waits, or sets an earlier due time than the sweeper has (Q18); and a lease
//! that a Cancel with force or a purge has ended (Q7, Q23). A server publishes the flow of its small flushes that are slow (S5).

use futures::StreamExt;
use redis::aio::PubSub;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tallystone_link::{Primary, StoreStatus};
use tallystone_lua::keys::WAKE_CHANNEL;
use tallystone_lua::{record, shard_of_state_key};
use tallystone_model::Shard;
use tallystone_model::store::{LeaseRef, NotifyLightFlow, NotifyRevoked};
use tokio::sync::watch;

/// Between two probes of the subscription.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// A Redis that is busy for as long as this answers no call either.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a notification of a flow begins with. No key of a shard does.
const LIGHT_FLOW: &str = "light ";

type Notify = Box<dyn Fn(&Shard) + Send + Sync>;

/// The callback for wake-ups, and the shards for which this server has waiting callers. After a broken subscription,
/// which may have lost wake-ups, all of these shards are woken.
#[derive(Default)]
pub(super) struct Wakes {
    notify: Mutex<Option<Arc<Notify>>>,
    notify_revoked: Mutex<Option<Arc<NotifyRevoked>>>,
    notify_light_flow: Mutex<Option<Arc<NotifyLightFlow>>>,
    waiting: Mutex<HashSet<Shard>>,
}

impl Wakes {
    pub(super) fn set(&self, notify: Notify) {
        *self.notify.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(notify));
    }

    pub(super) fn set_revoked(&self, notify: NotifyRevoked) {
        *self.notify_revoked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(notify));
    }

    fn revoked(&self, shard: &Shard, lease: &LeaseRef) {
        let notify = self.notify_revoked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(notify) = notify {
            notify(shard, lease);
        }
    }

    pub(super) fn set_light_flow(&self, notify: NotifyLightFlow) {
        *self.notify_light_flow.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(notify));
    }

    fn light_flow(&self, flow: &str) {
        let notify = self.notify_light_flow.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(notify) = notify {
            notify(flow);
        }
    }

    pub(super) fn waits(&self, shard: &Shard) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains(shard) {
            waiting.insert(shard.clone());
        }
    }

    fn wake(&self, shard: &Shard) {
        let notify = self.notify.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(notify) = notify {
            notify(shard);
        }
    }

    /// The shards for which this server may have waiting callers.
    pub(super) fn waiting(&self) -> Vec<Shard> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Wakes a shard whose wake-up was lost. Its callers wait again if they find nothing.
    pub(super) fn wake_waiting(&self, shard: &Shard) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(shard);
        self.wake(shard);
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for shard in waiting {
            self.wake(&shard);
        }
    }
}

/// A subscription, and the node that it was made with.
pub(super) struct Subscription {
    messages: PubSub,
    node: redis::Client,
}

/// Listens until the store is dropped, and subscribes again whenever the subscription breaks or another node is the
/// primary. The `first` one, at the first of the primaries, exists already, because a server must receive wake-ups before it
/// answers calls. Every node of a Redis Cluster gets all wake-ups, so each next subscription is made at another node.
pub(super) async fn listen(primaries: Vec<Primary>, first: Subscription, wakes: Weak<Wakes>) {
    const RETRY: Duration = Duration::from_millis(200);
    let mut next = primaries.iter().cycle();
    let Some(primary) = next.next() else { return };
    forward(primary, first, &wakes).await;
    let mut broken = false;
    while wakes.strong_count() > 0 {
        if !std::mem::replace(&mut broken, true) {
            tracing::warn!("the wake-up subscription is broken; trying again");
        }
        tokio::time::sleep(RETRY).await;
        let Some(primary) = next.next() else { return };
        if let Ok(subscription) = subscribe(primary).await {
            broken = false;
            tracing::info!("listening for wake-ups again");
            forward(primary, subscription, &wakes).await;
        }
    }
}

/// Wakes all shards whenever the store is found not to be what it was: their waiting callers get that answer.
pub(super) async fn wake_when_lost(mut status: watch::Receiver<StoreStatus>, wakes: Weak<Wakes>) {
    while status.wait_for(|status| matches!(status, StoreStatus::Lost(_))).await.is_ok() {
        let Some(found) = wakes.upgrade() else { return };
        found.wake_all();
        drop(found);
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Subscribes, or fails in bounded time: a Redis that dies meanwhile must not block the start of the server.
pub(super) async fn subscribe(primary: &Primary) -> redis::RedisResult<Subscription> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let subscribed = async {
        let node = primary.client().await?;
        let mut messages = node.get_async_pubsub().await?;
        messages.subscribe(WAKE_CHANNEL).await?;
        Ok(Subscription { messages, node })
    };
    tokio::time::timeout(TIMEOUT, subscribed).await.unwrap_or_else(|_| {
        Err(redis::RedisError::from((redis::ErrorKind::Io, "the subscription was not answered in time")))
    })
}

/// Forwards wake-ups until the subscription breaks. It begins by waking all shards, because earlier wake-ups may be lost.
async fn forward(primary: &Primary, subscription: Subscription, wakes: &Weak<Wakes>) {
    if let Some(wakes) = wakes.upgrade() {
        wakes.wake_all();
    }
    let Subscription { messages, node } = subscription;
    let (mut sink, mut messages) = messages.split();
    let forwarded = async {
        while let Some(message) = messages.next().await {
            let Some(wakes) = wakes.upgrade() else { return };
            deliver(message.get_payload_bytes(), &wakes);
        }
    };
    // A connection that is gone without a word looks like one on which nothing is published.
    let probed = async {
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            match tokio::time::timeout(PROBE_TIMEOUT, sink.ping::<redis::Value>()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = forwarded => {}
        () = probed => {}
        () = primary.leaves(&node) => {}
    }
}

/// The notification of a flow.
pub(super) fn light_flow(flow: &str) -> String {
    format!("{LIGHT_FLOW}{flow}")
}

/// Notifies what waits for one message of the channel.
pub(super) fn deliver(payload: &[u8], wakes: &Wakes) {
    if let Some(flow) = payload.strip_prefix(LIGHT_FLOW.as_bytes()) {
        return std::str::from_utf8(flow).map_or((), |flow| wakes.light_flow(flow));
    }
    match parse(payload) {
        Some((shard, None)) => wakes.wake(&shard),
        Some((shard, Some(lease))) => wakes.revoked(&shard, &lease),
        None => {}
    }
}

/// The state key of a shard, alone or with the fencing token and the id of a lease that has been revoked.
fn parse(payload: &[u8]) -> Option<(Shard, Option<LeaseRef>)> {
    let mut parts = payload.splitn(3, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let shard = shard_of_state_key(text()?)?;
    let Some(fencing_token) = text() else { return Some((shard, None)) };
    let id = record::decode_id(parts.next()?).ok()?;
    let fencing_token = shard.token(fencing_token.parse().ok()?);
    Some((shard, Some(LeaseRef { id, fencing_token })))
}
