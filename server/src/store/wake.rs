//! Wake-ups between servers (Q18): a script that makes something runnable where another server waits, or sets an
//! earlier due time than the sweeper knows of, publishes the shard's name; every server listens on one channel.

use futures::StreamExt;
use redis::aio::PubSub;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tallystone_lua::keys::WAKE_CHANNEL;
use tallystone_lua::shard_of_state_key;
use tallystone_model::Shard;

type Tell = Box<dyn Fn(&Shard) + Send + Sync>;

/// Who is told, and for which shards this server has waiters: they are looked at again after a broken
/// subscription, during which wake-ups may have been lost.
#[derive(Default)]
pub(super) struct Wakes {
    tell: Mutex<Option<Arc<Tell>>>,
    waiting: Mutex<HashSet<Shard>>,
}

impl Wakes {
    pub(super) fn set(&self, tell: Tell) {
        *self.tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tell));
    }

    pub(super) fn waits(&self, shard: &Shard) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains(shard) {
            waiting.insert(shard.clone());
        }
    }

    fn tell(&self, shard: &Shard) {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            tell(shard);
        }
    }

    fn tell_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for shard in waiting {
            self.tell(&shard);
        }
    }
}

/// Listens until the store is dropped, over as many subscriptions as it takes. The first is there already: a server
/// that answers calls hears what the others tell.
pub(super) async fn listen(client: redis::Client, first: PubSub, wakes: Weak<Wakes>) {
    const RETRY: Duration = Duration::from_millis(200);
    hear(first, &wakes).await;
    let mut broken = false;
    while wakes.strong_count() > 0 {
        if !std::mem::replace(&mut broken, true) {
            tracing::warn!("the wake-up subscription is broken; trying again");
        }
        tokio::time::sleep(RETRY).await;
        if let Ok(subscription) = subscribe(&client).await {
            broken = false;
            tracing::info!("listening for wake-ups again");
            hear(subscription, &wakes).await;
        }
    }
}

/// A subscription, or an error in bounded time: a Redis that dies in between must not hold a starting server.
pub(super) async fn subscribe(client: &redis::Client) -> redis::RedisResult<PubSub> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let subscribed = async {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(WAKE_CHANNEL).await?;
        Ok(subscription)
    };
    tokio::time::timeout(TIMEOUT, subscribed).await.unwrap_or_else(|_| {
        Err(redis::RedisError::from((redis::ErrorKind::Io, "the subscription was not answered in time")))
    })
}

/// Passes wake-ups on until the subscription breaks. What came before it may have been missed.
async fn hear(subscription: PubSub, wakes: &Weak<Wakes>) {
    if let Some(wakes) = wakes.upgrade() {
        wakes.tell_all();
    }
    let mut messages = subscription.into_on_message();
    while let Some(message) = messages.next().await {
        let Some(wakes) = wakes.upgrade() else { return };
        if let Some(shard) = message.get_payload::<String>().ok().and_then(|key| shard_of_state_key(&key)) {
            wakes.tell(&shard);
        }
    }
}
