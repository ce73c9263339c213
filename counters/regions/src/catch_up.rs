//! What a counter lacks of other regions: it follows their clears, and is rolled up until its count is exact to their latest events.

use crate::metrics;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tallystone_counters::redis::{Lacking, RedisNamespace};
use tallystone_counters::regions::{Followed, follow_clear};
use tallystone_counters::{Checkpoint, CounterName, Refusal, RollupSchedule};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counters that follow a clear at once: each may read many events.
const FOLLOWING_MAX: usize = 16;
/// How much longer than `due_after_ms` the count of a counter with new adds is behind at most, in ms.
const SLACK_MS: u64 = 3_000;
/// How soon a counter tries again to follow a clear that came too late, in ms, if no rollup commits meanwhile: it only succeeds
/// once the counter is cleared again.
const DROPPED_AGAIN_MS: u64 = 600_000;

/// The counters that follow a clear at this moment.
#[derive(Clone)]
pub(crate) struct CatchUp {
    following: Following,
    room: Arc<Semaphore>,
}

/// By the tag of their namespace and their name.
type Following = Arc<Mutex<HashSet<(String, CounterName)>>>;

/// The permit of one of them, until it is dropped.
struct FollowPermit {
    key: (String, CounterName),
    following: Following,
    _room: OwnedSemaphorePermit,
}

impl Drop for FollowPermit {
    fn drop(&mut self) {
        locked(&self.following).remove(&self.key);
    }
}

impl Default for CatchUp {
    fn default() -> Self {
        CatchUp { following: Arc::default(), room: Arc::new(Semaphore::new(FOLLOWING_MAX)) }
    }
}

impl CatchUp {
    /// Begins what these counters need. They need attention again, so what fails or is left out now comes later.
    pub(crate) async fn all(
        &self,
        store: &RedisNamespace,
        lacking: Vec<(CounterName, Checkpoint, Lacking)>,
    ) -> Result<(), Refusal> {
        let mut touched = Vec::new();
        for (counter, own, Lacking { clear_ms, is_earlier }) in lacking {
            let is_exact_after = |clear_ms: u64| own.exact_to_ms > clear_ms;
            match clear_ms {
                Some(clear_ms) if is_exact_after(clear_ms) => {
                    if let Some(permit) = self.permit(store.tag(), &counter) {
                        tokio::spawn(follow(permit, store.clone(), counter, clear_ms));
                    }
                }
                // A counter with new adds is rolled up anyway: others wait for it a moment longer.
                Some(_) => touched.push((counter, true)),
                None if is_earlier && is_idle(store, &own) => touched.push((counter, true)),
                None => {}
            }
        }
        if touched.is_empty() { Ok(()) } else { store.touch(&touched).await.map(drop) }
    }

    /// `None`: too many counters follow a clear, or this one does already.
    fn permit(&self, tag: &str, counter: &CounterName) -> Option<FollowPermit> {
        let _room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let (key, following) = ((tag.to_owned(), counter.clone()), self.following.clone());
        let is_new = locked(&following).insert(key.clone());
        // Not `then_some`: a permit that is made and dropped would free that of the running task.
        is_new.then(|| FollowPermit { key, following, _room })
    }
}

async fn follow(permit: FollowPermit, store: RedisNamespace, counter: CounterName, clear_ms: u64) {
    let followed = follow_clear(&store, &counter, clear_ms, || store.kept_from_ms()).await;
    metrics::followed(&followed);
    let next = match followed {
        Ok(Followed::Done | Followed::NotYet) => Ok(()),
        Err(error @ Refusal::EventsDropped { .. }) => {
            tracing::warn!(namespace = %store.name(), %counter, clear_ms, %error, "cannot follow a clear of another region");
            store.attend_later(&counter, DROPPED_AGAIN_MS).await
        }
        Err(error) => {
            tracing::debug!(namespace = %store.name(), %counter, clear_ms, %error, "cannot follow a clear yet");
            Ok(())
        }
    };
    if let Err(error) = next {
        tracing::debug!(namespace = %store.name(), %error, "a counter that follows a clear needs attention again");
    }
    drop(permit);
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the count is further behind than that of a counter with new adds.
fn is_idle(store: &RedisNamespace, own: &Checkpoint) -> bool {
    own.exact_to_ms + behind_ms_max(store) < store.now_ms()
}

/// How far the count of a counter with new adds is behind at most, in ms.
pub(crate) fn behind_ms_max(store: &RedisNamespace) -> u64 {
    store.config().due_after_ms() + SLACK_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn n12_a_permit_is_free_again_whatever_ends_its_task() {
        let (catch_up, counter) = (CatchUp::default(), CounterName::parse("a").unwrap());
        let permit = catch_up.permit("ads", &counter).expect("a permit");
        for _ in 0..2 {
            assert!(catch_up.permit("ads", &counter).is_none(), "it follows already");
        }
        assert_eq!(catch_up.room.available_permits(), FOLLOWING_MAX - 1);
        let ended = tokio::spawn(async move {
            let _permit = permit;
            panic!("a defect");
        });
        assert!(ended.await.is_err());
        assert_eq!(catch_up.room.available_permits(), FOLLOWING_MAX);
        assert!(catch_up.permit("ads", &counter).is_some());
    }
}
