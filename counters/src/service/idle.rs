//! Idle namespaces wait here: a namespace without dirty counters is not polled shard by shard. A server checks all of them
//! together (Q18).

use super::gather::{Gather, Pace};
use crate::redis::RedisNamespaces;
use crate::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tallystone_serving::{RoomPlace, WaitingRoom};

/// Namespaces that are checked within this time are checked together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Checks whether idle namespaces have become dirty.
pub(super) struct IdleNamespaces {
    checks: Gather<String, Result<bool, Refusal>>,
    place: Arc<RoomPlace>,
}

impl IdleNamespaces {
    pub(super) fn new(namespaces: RedisNamespaces, room: &WaitingRoom) -> IdleNamespaces {
        let pace = Pace { wait: TOGETHER, in_flight: 1 };
        let checks = Gather::start(pace, room.clone(), move |tags: Vec<String>, _| {
            let namespaces = namespaces.clone();
            async move {
                match namespaces.have_dirty(&tags).await {
                    Ok(have) => have.into_iter().map(Ok).collect(),
                    Err(refusal) => tags.iter().map(|_| Err(refusal.clone())).collect(),
                }
            }
        });
        // There are no more checks than namespaces.
        IdleNamespaces { checks, place: room.uncounted() }
    }

    /// Whether the namespace of this [tag](crate::redis::Namespace::tag) still has no dirty counter. An error counts as no: the caller's poll will show it.
    pub(super) async fn is_idle(&self, tag: &str) -> bool {
        self.checks.call(vec![tag.to_owned()], &self.place).await.first() == Some(&Ok(false))
    }
}
