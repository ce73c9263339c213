//! The trigger (N9): counters that are due become jobs in the rollup queues.
//!
//! Every server requests the due counters from every shard. The shard holds those that it returns, so the servers share
//! the work without speaking to each other, and a server that dies before it has made the jobs loses nothing: after the
//! hold the counters fall due again. Jobs coalesce (Q12): two jobs of one counter are one rollup.
//!
//! Where no worker executes the jobs, little happens: each hold of a counter is longer than the previous one, a queue that
//! refuses jobs is rarely tried ([`gates`](super::gates)), and nothing falls due for it meanwhile. A namespace without
//! dirty counters is not polled ([`idle`](super::idle)).

use super::gates::{AWAY_PAUSE_MAX, Gates, Obstacle};
use super::idle::IdleNamespaces;
use super::open::OpenNamespace;
use super::rollup_queue::{EXCLUSIVITY_KEY, is_retired, prefix, queue_config, queue_of, retired, rollup_queue};
use crate::log::{Due, RollupSchedule};
use crate::names::CounterName;
use crate::namespace::{CounterType, NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Error, NewMessage, QueueConfig};
use tokio::time::Instant;

/// Counters that one call of a shard returns: a batch of the queue holds those of several shards. Adds wait for this service
/// while it handles those of all shards; 250 a shard cost adds during rollups 5 ms of p99, and gained 2 % of rollups.
const DUE_MAX: usize = 100;
const JOBS_MAX: usize = 1_000;
/// Counters that fall due within this time become jobs together.
const TOGETHER: Duration = Duration::from_millis(50);
/// The longest time between two polls.
const POLL_MAX: Duration = Duration::from_secs(5);
/// Bounds of the time for which a shard first holds a counter: its rollup should be done within it.
const HOLD_MS: RangeInclusive<u64> = 1_000..=5_000;
/// Bounds of the time after which a counter falls due again whose job was refused. With many dirty counters in its shard
/// it is [`DEFER_EACH`] for each: so the number that fall due in a second is bounded.
const DEFER: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(300);
const DEFER_EACH: Duration = Duration::from_millis(4);
/// Bounds of the same time where the queue is unavailable.
const DEFER_AWAY: RangeInclusive<Duration> = AWAY_PAUSE_MAX..=*DEFER.end();
/// The first and the longest pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs until the namespace is opened again in another revision.
pub(super) async fn run<S: RollupSchedule>(open: Arc<OpenNamespace<S>>, queue: Client, idle: Arc<IdleNamespaces>) {
    if open.config.counter_type == CounterType::BestEffort {
        return;
    }
    let namespace = open.name.clone();
    let gates = Gates::new(namespace.clone(), open.config.num_queues);
    // A job that is not made now is made after the hold, so a call need not be repeated for longer.
    let queue = queue.with_retry_for(Duration::from_secs(1));
    let mut trigger = Trigger { open, queue, idle, gates, has_queues: false };
    let mut failing: Option<Duration> = None;
    loop {
        match Box::pin(trigger.step()).await {
            Ok(next) => {
                if failing.take().is_some() {
                    tracing::info!(%namespace, "rollups of due counters are requested again");
                }
                trigger.wait(next).await;
            }
            Err(Failed::Store(Refusal::Stale)) => return trigger.open.set_refused(),
            // The witness has logged it, once for all namespaces.
            Err(Failed::Store(Refusal::ClockSkew { .. })) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                if failing.is_none() {
                    tracing::warn!(%namespace, %error, "cannot request rollups of due counters; trying until it succeeds");
                }
                let pause = match error {
                    // The other shards are not to wait for it.
                    Failed::Shard(_) => PAUSE,
                    _ => failing.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX)),
                };
                failing = Some(pause);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

struct Trigger<S> {
    open: Arc<OpenNamespace<S>>,
    queue: Client,
    idle: Arc<IdleNamespaces>,
    gates: Gates,
    /// The queues of this revision exist, as far as this server knows.
    has_queues: bool,
}

/// What follows a poll.
enum Next {
    /// The next poll, after this time.
    PollAfter(Duration),
    /// No counter is dirty.
    Idle,
}

/// The jobs of one queue, after one call.
#[derive(Default)]
struct Offered {
    /// When the latest of its jobs was enqueued (Unix ms, by the queue's clock); `None`: it accepted none.
    enqueued_at_ms: Option<u64>,
    /// Counters whose jobs the queue did not accept, or was not sent.
    without_job: Vec<CounterName>,
    /// What kept the latest of them from it, and the message for the log.
    obstacle: Option<(Obstacle, String)>,
    /// The queue does not exist.
    is_missing: bool,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the store: {0}")]
    Store(#[from] Refusal),
    #[error("a shard of the store: {0}")]
    Shard(Refusal),
    #[error("the queue: {0}")]
    Queue(#[from] Error),
}

impl<S: RollupSchedule> Trigger<S> {
    fn config(&self) -> &NamespaceConfig {
        &self.open.config
    }

    async fn step(&mut self) -> Result<Next, Failed> {
        if !self.has_queues {
            self.make_queues().await?;
            self.has_queues = true;
        }
        self.poll().await
    }

    /// Waits for the next poll, or until a read hurries a rollup.
    async fn wait(&self, next: Next) {
        let hurried = async {
            self.open.touches.hurried.notified().await;
            tokio::time::sleep(TOGETHER).await;
        };
        let until_poll = async {
            match next {
                Next::PollAfter(pause) => tokio::time::sleep(pause).await,
                Next::Idle => loop {
                    tokio::time::sleep(self.poll_every()).await;
                    if !self.idle.is_idle(&self.open.tag).await {
                        return;
                    }
                },
            }
        };
        tokio::select! {
            () = until_poll => {}
            () = hurried => {}
        }
    }

    /// No event that comes from now on makes a counter due before the accept limit is over, unless a client reads it.
    fn poll_every(&self) -> Duration {
        Duration::from_millis(self.config().lag_ms()).min(POLL_MAX)
    }

    /// Creates or updates the queues of this revision, and deletes those of another `num_queues` when no job of theirs runs.
    async fn make_queues(&self) -> Result<(), Error> {
        let tag = &self.open.tag;
        let ours: Vec<String> = (0..self.config().num_queues).map(|n| rollup_queue(tag, self.config(), n)).collect();
        let config = queue_config(self.config());
        let (mut there, mut page_token) = (BTreeMap::new(), String::new());
        loop {
            let page = self.queue.list_queues(&prefix(tag), 1_000, &page_token).await?;
            there.extend(page.items.into_iter().map(|found| (found.queue.name.clone(), found)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        for (old, summary) in there.iter().filter(|(name, _)| !ours.contains(name)) {
            self.queue.update_queue(old, retired()).await?;
            while self.queue.depth(old, None).await?.running > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            tracing::info!(
                queue = old,
                waiting = summary.depth.pending,
                "deleting a rollup queue that is no longer used"
            );
            self.queue.delete_queue(old, true).await?;
        }
        for ours in &ours {
            match there.get(ours) {
                None => drop(self.queue.create_queue(ours, config.clone()).await?),
                Some(there) => {
                    let dequeue_blocked = is_retired(&there.queue.config).then_some(false);
                    let change = QueueConfig { queue_type: None, shards: None, dequeue_blocked, ..config.clone() };
                    self.queue.update_queue(ours, change).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes jobs of what is due in each shard. Where no queue accepts jobs, it requests only as many counters as it may
    /// send jobs to try the queues.
    async fn poll(&mut self) -> Result<Next, Failed> {
        let shut_until = self.gates.all_shut_until();
        if let Some(pause) =
            shut_until.and_then(|at| at.checked_duration_since(Instant::now())).filter(|p| !p.is_zero())
        {
            return Ok(Next::PollAfter(pause));
        }
        let limit = if shut_until.is_some() { usize::from(self.config().num_queues.div_ceil(SHARDS)) } else { DUE_MAX };
        let store = &self.open.store;
        let hold_ms = self.config().lag_ms().clamp(*HOLD_MS.start(), *HOLD_MS.end());
        let replies = join_all((0..SHARDS).map(|shard| store.due(shard, limit, hold_ms))).await;
        // A shard holds what it has returned: that becomes jobs even if another shard does not reply.
        let (mut found, mut failed) = (Vec::new(), None);
        for (shard, reply) in (0..SHARDS).zip(replies) {
            match reply {
                Ok(due) => found.push((shard, due)),
                Err(refusal) => failed = Some(refusal),
            }
        }
        let dirty = found.iter().map(|(_, due)| due.dirty).sum();
        crate::metrics::dirty(&self.open.name, dirty);
        if dirty > 0 {
            self.open.dirtied.notify_one();
        }
        let queues_missing = self.offer(&found).await?;
        if queues_missing {
            // They were deleted. Only the latest revision may create them again: this call fails for any other.
            self.open.store.due(0, 0, 0).await?;
            self.has_queues = false;
            return Ok(Next::PollAfter(TOGETHER));
        }
        match failed {
            None => {}
            Some(refusal @ Refusal::Unavailable { .. }) if !found.is_empty() => return Err(Failed::Shard(refusal)),
            Some(refusal) => return Err(refusal.into()),
        }
        if found.iter().all(|(_, due)| due.dirty == 0) {
            return Ok(Next::Idle);
        }
        // A queue may be tried now while no counter is due: then the pause is that until the next one is.
        let shut_for = self.gates.all_shut_until().and_then(|at| at.checked_duration_since(Instant::now()));
        if let Some(pause) = shut_for.filter(|pause| !pause.is_zero()) {
            return Ok(Next::PollAfter(pause));
        }
        if found.iter().any(|(_, due)| due.counters.len() == limit) {
            return Ok(Next::PollAfter(Duration::ZERO));
        }
        let next = |due: &Due| Some(Duration::from_millis(due.next_ms?.saturating_sub(due.now_ms)));
        let next = found.iter().filter_map(|(_, due)| next(due));
        Ok(Next::PollAfter(next.fold(self.poll_every(), Duration::min).max(TOGETHER)))
    }

    /// Makes jobs of these counters. Those that got none fall due again. Returns whether a queue is missing.
    async fn offer(&mut self, found: &[(u16, Due)]) -> Result<bool, Refusal> {
        let mut jobs: BTreeMap<u16, BTreeMap<&CounterName, u64>> = BTreeMap::new();
        for (counter, due_ms) in found.iter().flat_map(|(_, due)| &due.counters) {
            // Several shards may have something of the same counter.
            let due = jobs.entry(queue_of(counter, self.config())).or_default().entry(counter).or_insert(*due_ms);
            *due = (*due).min(*due_ms);
        }
        let offers = jobs.iter().map(|(number, jobs)| self.enqueue(*number, self.gates.allows(*number), jobs));
        let offered = join_all(offers).await;
        let (mut refused, mut away, mut is_missing) = (BTreeSet::new(), BTreeSet::new(), false);
        for (number, offered) in jobs.keys().zip(offered) {
            if let Some(enqueued_at_ms) = offered.enqueued_at_ms {
                self.gates.accepted(*number, enqueued_at_ms);
            }
            if let Some((by, why)) = &offered.obstacle {
                self.gates.refused(*number, *by, why);
            }
            is_missing |= offered.is_missing;
            let without_job = match self.gates.obstacle(*number) {
                Some(Obstacle::Away) => &mut away,
                _ => &mut refused,
            };
            without_job.extend(offered.without_job);
        }
        let waiting = [(&refused, DEFER), (&away, DEFER_AWAY)];
        let deferred = found.iter().flat_map(|found| waiting.iter().map(move |waiting| (found, waiting)));
        let deferred = deferred.map(async |((shard, due), (without_job, bounds))| {
            let counters = due.counters.iter().map(|(counter, _)| counter);
            let counters: Vec<CounterName> =
                counters.filter(|counter| without_job.contains(*counter)).cloned().collect();
            let each = DEFER_EACH * u32::try_from(due.dirty).unwrap_or(u32::MAX);
            let delay = each.clamp(*bounds.start(), *bounds.end());
            self.open.store.defer(*shard, &counters, delay.as_millis() as u64).await
        });
        for deferred in join_all(deferred).await {
            deferred?;
        }
        Ok(is_missing)
    }

    /// Makes jobs in one queue, `allowed` at most.
    async fn enqueue(&self, number: u16, allowed: usize, jobs: &BTreeMap<&CounterName, u64>) -> Offered {
        let queue = rollup_queue(&self.open.tag, self.config(), number);
        let jobs: Vec<(&CounterName, u64)> = jobs.iter().map(|(counter, due_ms)| (*counter, *due_ms)).collect();
        let (sent, rest) = jobs.split_at(jobs.len().min(allowed));
        let mut offered = Offered::default();
        for jobs in sent.chunks(JOBS_MAX) {
            let message = |(counter, due_ms): &(&CounterName, u64)| {
                let job = NewMessage::new(counter.as_str(), Vec::new()).metadata(EXCLUSIVITY_KEY, counter.as_str());
                job.priority(*due_ms as i64).coalesce()
            };
            match self.queue.enqueue(&queue, jobs.iter().map(message).collect()).await {
                Ok(results) => {
                    let accepted = results.iter().flatten().map(|enqueued| enqueued.enqueued_at_ms);
                    offered.enqueued_at_ms = offered.enqueued_at_ms.max(accepted.clone().max());
                    crate::metrics::jobs(accepted.count());
                    for ((counter, _), refused) in
                        jobs.iter().zip(results).filter_map(|(job, result)| Some((job, result.err()?)))
                    {
                        offered.without_job.push((*counter).clone());
                        let by = if refused.is_unavailable() { Obstacle::Away } else { Obstacle::Refused };
                        offered.obstacle = Some((by, refused.to_string()));
                    }
                }
                Err(error) => {
                    let refused = error.refused();
                    offered.is_missing |= refused.is_some_and(|refused| refused.reason == "QUEUE_NOT_FOUND");
                    if !offered.is_missing {
                        // A queue server that is overloaded has other jobs, and takes these soon.
                        let is_closed = refused.is_some_and(|refused| refused.reason != "OVERLOADED");
                        let by = if is_closed { Obstacle::Refused } else { Obstacle::Away };
                        offered.obstacle = Some((by, error.to_string()));
                    }
                    offered.without_job.extend(jobs.iter().map(|(counter, _)| (*counter).clone()));
                }
            }
        }
        offered.without_job.extend(rest.iter().map(|(counter, _)| (*counter).clone()));
        offered
    }
}
