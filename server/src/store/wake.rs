//! Wake-ups between servers (Q18): a script that makes something runnable where another server waits, or sets an
//! earlier due time than the sweeper knows of, publishes the shard's name; every server listens on one channel.

use futures::StreamExt;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
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

/// Listens until the store is dropped.
pub(super) async fn listen(client: redis::Client, wakes: std::sync::Weak<Wakes>) {
    const RETRY: Duration = Duration::from_millis(200);
    let mut last_failed = false;
    while wakes.strong_count() > 0 {
        if let Ok(mut subscription) = client.get_async_pubsub().await {
            if subscription.subscribe(WAKE_CHANNEL).await.is_ok() {
                if last_failed {
                    tracing::info!("listening for wake-ups again");
                }
                match wakes.upgrade() {
                    Some(wakes) => wakes.tell_all(),
                    None => return,
                }
                let mut messages = subscription.into_on_message();
                while let Some(message) = messages.next().await {
                    let Some(wakes) = wakes.upgrade() else { return };
                    if let Some(shard) = message.get_payload::<String>().ok().and_then(|key| shard_of_state_key(&key)) {
                        wakes.tell(&shard);
                    }
                }
            }
        }
        if !last_failed {
            tracing::warn!("the wake-up subscription is broken; trying again");
        }
        last_failed = true;
        tokio::time::sleep(RETRY).await;
    }
}
