//! The background sweeps (Q5): windows that elapse, leases that run out, terminal messages past their retention.
//!
//! Of many servers one sweeps at a time: it holds a *turn* in the store and renews it; when it dies the turn ends and
//! another takes over. The sweeper does not poll the shards. It sleeps until the earliest due time that it knows of:
//! from the last sweep of each shard, from what this server's lanes see, from the store's tells, and from a walk over
//! all queues at the begin of its turn and every [`WALK`].

use crate::engine::lanes::Lanes;
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::store::RedisStore;
use rand::Rng;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_model::limits::{PAGE_ITEMS_MAX, SWEEP_ITEMS_MAX};
use tallystone_model::store::Swept;
use tallystone_model::{Refusal, Shard, Store};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often all queues are looked at, whatever is known of them.
const WALK: Duration = Duration::from_secs(30);
/// The least time between two sweeps of a shard, unless there was more to do than one may.
const PACE: Duration = Duration::from_millis(100);
/// How soon a shard is looked at of which only is known that something has changed.
const TOUCH: Duration = Duration::from_secs(1);
/// Before the next try after the store was away.
const AWAY: Duration = Duration::from_secs(1);

/// Whose turn it is to sweep.
pub trait SweepTurn {
    /// Takes the turn, or renews it, for `turn_ms`; `false`: another server has it. A store for one server only, such
    /// as the oracle, always gives it.
    fn take_turn(&self, owner: &str, turn_ms: u64) -> impl Future<Output = Result<bool, Refusal>> + Send {
        let _ = (owner, turn_ms);
        async { Ok(true) }
    }
}

impl SweepTurn for tallystone_model::oracle::Oracle {}

impl SweepTurn for RedisStore {
    async fn take_turn(&self, owner: &str, turn_ms: u64) -> Result<bool, Refusal> {
        RedisStore::take_turn(self, "sweep", owner, turn_ms).await
    }
}

/// When each shard is due; shared by the sweeper and those who tell it.
#[derive(Default)]
pub(crate) struct Schedule {
    shards: Mutex<HashMap<Shard, Due>>,
    changed: Notify,
    /// This server has the turn. Without it there is nothing to remember: a turn begins with a walk.
    mine: AtomicBool,
}

/// When one shard is to be swept.
struct Due {
    /// `None`: nothing falls due there.
    at: Option<Instant>,
    /// Not sooner than this, whatever falls due ([`PACE`]).
    not_before: Instant,
}

impl Due {
    fn at(&self) -> Option<Instant> {
        self.at.map(|at| at.max(self.not_before))
    }
}

impl Schedule {
    /// Something in the shard falls due in so long.
    pub(crate) fn due(&self, shard: &Shard, from_now: Duration) {
        if !self.mine.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let at = now + from_now;
        let mut shards = self.lock();
        match shards.get_mut(shard) {
            Some(due) if due.at.is_some_and(|known| known <= at) => return,
            Some(due) => due.at = Some(at),
            None => drop(shards.insert(shard.clone(), Due { at: Some(at), not_before: now })),
        }
        drop(shards);
        self.changed.notify_one();
    }

    /// Something has changed in the shard.
    pub(crate) fn touch(&self, shard: &Shard) {
        self.due(shard, TOUCH);
    }

    /// The shard that is due first, if it is due now; else when it will be.
    fn next(&self, now: Instant) -> Result<Shard, Option<Instant>> {
        let mut shards = self.lock();
        let due = shards.iter_mut().filter_map(|(shard, due)| Some((due.at()?, shard, due)));
        match due.min_by_key(|(at, ..)| *at) {
            Some((at, shard, due)) if at <= now => {
                *due = Due { at: None, not_before: now + PACE };
                Ok(shard.clone())
            }
            later => Err(later.map(|(at, ..)| at)),
        }
    }

    /// There is more to do than one sweep may: the pace does not hold.
    fn hurry(&self, shard: &Shard) {
        if let Some(due) = self.lock().get_mut(shard) {
            due.not_before = Instant::now();
        }
    }

    fn forget(&self, shard: &Shard) {
        self.lock().remove(shard);
    }

    fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shard, Due>> {
        // Nothing in here leaves the map half changed.
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sweeper of one server.
pub(crate) struct Sweeper<S> {
    pub(crate) store: Arc<S>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: StoreHealth,
    /// Tells this server apart from the others.
    pub(crate) owner: String,
    pub(crate) turn_ms: u64,
}

impl<S: Store + SweepTurn> Sweeper<S> {
    /// Sweeps whenever it is this server's turn, until the server stops.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        let _ = stopping.run_until_cancelled(self.turns()).await;
    }

    async fn turns(&self) {
        let renew = Duration::from_millis(self.turn_ms / 3);
        // A turn begins with a walk that looks at every shard at once; later ones spread their looks.
        let (mut walk_at, mut renew_at, mut spread) = (Instant::now(), Instant::now(), Duration::ZERO);
        loop {
            let now = Instant::now();
            if renew_at <= now {
                let before = self.schedule.mine.load(Ordering::Relaxed);
                let turn = self.store.take_turn(&self.owner, self.turn_ms).await;
                self.health.saw(&turn);
                let mine = turn.unwrap_or(false);
                self.schedule.mine.store(mine, Ordering::Relaxed);
                renew_at = Instant::now() + renew;
                if !mine {
                    self.schedule.clear();
                    tokio::time::sleep(renew).await;
                    continue;
                }
                if !before {
                    tracing::debug!(owner = self.owner, "this server sweeps now");
                    (walk_at, spread) = (now, Duration::ZERO);
                }
            }
            if walk_at <= now {
                walk_at = now + AWAY;
                if self.walk(spread).await.is_ok() {
                    (walk_at, spread) = (now + WALK, WALK);
                }
            }
            match self.schedule.next(Instant::now()) {
                Ok(shard) => self.sweep(&shard).await,
                Err(due_at) => {
                    let wake_at = due_at.map_or(walk_at, |due_at| due_at.min(walk_at)).min(renew_at);
                    tokio::select! {
                        () = tokio::time::sleep_until(wake_at) => {}
                        () = self.schedule.changed.notified() => {}
                    }
                }
            }
        }
    }

    /// Puts every shard of every queue on the schedule, at times drawn from `spread`.
    async fn walk(&self, spread: Duration) -> Result<(), Refusal> {
        let mut cursor = String::new();
        loop {
            let page = self.store.list_queues("", &cursor, PAGE_ITEMS_MAX).await?;
            for queue in &page.items {
                for number in 0..queue.config.shards {
                    let from_now = spread.mul_f64(rand::rng().random_range(0.0..1.0));
                    self.schedule.due(&Shard { queue: queue.name.clone(), number }, from_now);
                }
            }
            if page.next_cursor.is_empty() {
                return Ok(());
            }
            cursor = page.next_cursor;
        }
    }

    /// One bounded sweep of a shard, and when the next is due.
    async fn sweep(&self, shard: &Shard) {
        let swept = self.store.sweep(shard).await;
        self.health.saw(&swept);
        match swept {
            Ok(swept) => {
                self.count(&swept);
                if swept.promoted + swept.expired > 0 {
                    self.lanes.look(shard);
                }
                if is_full(&swept) {
                    self.schedule.hurry(shard);
                }
                if let Some(next_ms) = swept.next_ms {
                    self.schedule.due(shard, Duration::from_millis(next_ms.saturating_sub(swept.now_ms)));
                }
            }
            Err(Refusal::QueueNotFound { .. }) => self.schedule.forget(shard),
            Err(refusal) => {
                tracing::debug!(shard = shard.tag(), %refusal, "sweep refused");
                self.schedule.due(shard, AWAY);
            }
        }
    }

    fn count(&self, swept: &Swept) {
        self.metrics.sweeps.increment(1);
        self.metrics.promoted.increment(swept.promoted);
        self.metrics.expired.increment(swept.expired);
        self.metrics.collected.increment(swept.collected);
    }
}

/// It did as much as one sweep may: there is likely more.
fn is_full(swept: &Swept) -> bool {
    [swept.promoted, swept.expired, swept.collected].into_iter().any(|moved| moved >= SWEEP_ITEMS_MAX as u64)
}
