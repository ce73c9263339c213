//! The repair of a namespace that was written under a clock that was ahead (X6): its fences and checkpoints are at times that
//! are yet to come, so adds are refused and counts do not advance until then.
//!
//! Fences cannot simply go back: what is pending at the time ahead would count twice or not at all, and a clear there
//! would remove later adds. So everything is counted first. Meanwhile no other process may append, seal or settle: the
//! shards follow a revision that only this process knows, and the registry gets it at the end. A process that dies on the
//! way leaves a namespace that refuses changes (NAMESPACE_CHANGED) until the reset is made again; a later reset takes over
//! from an earlier one. Each step may be repeated.

use super::calls::{defect, of_link};
use super::fan_out::homes;
use super::record::read;
use super::{Namespace, RedisNamespace, RedisNamespaces};
use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::log::{RollupLog, Settlement, WINDOW_MS};
use crate::names::{CounterName, NamespaceName};
use crate::namespace::{CounterType, NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use crate::rollup::{Job, RolledUp, roll_up, settlement};
use futures::future::try_join_all;
use redis::Value;
use std::collections::BTreeSet;
use tallystone_lua::counter::{
    CounterAnswer, CounterScript, CounterShardKeys, STATE_LATEST, STATE_OPEN, STATE_PRUNED, STATE_REVISION,
    STATE_SEALED_TO, STATE_SHOWN,
};
use tallystone_model::Applied;

/// By how much a reset raises the revision: further than administrators do meanwhile.
const RESERVED: u64 = 1 << 32;
/// A reset leaves fences at the end of the present window, or of the next one where a try that died has left checkpoints.
const RESET_AHEAD_MS_MAX: u64 = 2 * WINDOW_MS;
/// Counters of one call.
const PAGE: usize = 500;
/// How often the registry is read again because another change came first.
const TRIES: usize = 10;

/// How far a namespace is ahead of the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockAhead {
    /// How far its latest fence is ahead of the store's clock, in ms; 0: it is not.
    pub ahead_ms: u64,
    /// A reset has begun and not ended: the namespace refuses changes until it is made again.
    pub is_reserved: bool,
}

/// What the shards of a namespace have reached.
#[derive(Default)]
struct Reached {
    revision: u64,
    /// The latest window that may have an event.
    latest: u64,
    /// The end of that window or the latest seal, in Unix ms.
    counted_to_ms: u64,
    /// The latest fence, in Unix ms.
    fence_ms: u64,
    /// Up to when a shard is archived, the latest of all, in Unix ms. Without an archive: up to when events were dropped.
    archived_to_ms: u64,
}

impl RedisNamespaces {
    /// How far a namespace is ahead of the store's clock. Changes nothing.
    ///
    /// # Errors
    /// [`Refusal::NamespaceNotFound`]. [`Refusal::ClockSkew`]: the store's clock is wrong now.
    pub async fn clock_ahead(&self, name: &NamespaceName) -> Result<ClockAhead, Refusal> {
        let namespace = self.found(name).await?;
        if namespace.config.counter_type == CounterType::BestEffort {
            return Ok(ClockAhead::default());
        }
        let (reached, now_ms) = (self.reached(&namespace).await?, self.right_ms().await?);
        let is_ahead = |ahead_ms: &u64| *ahead_ms > RESET_AHEAD_MS_MAX;
        let ahead_ms = reached.fence_ms.checked_sub(now_ms).filter(is_ahead).unwrap_or_default();
        Ok(ClockAhead { ahead_ms, is_reserved: reached.revision > namespace.revision })
    }

    /// Counts everything that is pending, and sets fences and checkpoints that are ahead of the store's clock back to it.
    /// No count changes. Events that were counted at times ahead stay listed there.
    ///
    /// # Errors
    /// As [`clock_ahead`](RedisNamespaces::clock_ahead). [`Refusal::Invalid`]: events at times ahead are in the archive. The log
    /// would have these times again, and what the archive then gets of them replaces what it has. After any error the same call may be made again.
    pub async fn reset_clock(&self, name: &NamespaceName) -> Result<(), Refusal> {
        let namespace = self.found(name).await?;
        if namespace.config.counter_type == CounterType::BestEffort {
            return Ok(());
        }
        let right_ms = self.right_ms().await?;
        let reached = self.reached(&namespace).await?;
        check_archive(&namespace, &reached, right_ms)?;
        let revision = reached.revision.max(namespace.revision + RESERVED - 1) + 1;
        // No counter expires: the time to which everything is counted here has not come yet.
        let config = NamespaceConfig { expire_after_ms: 0, ..namespace.config.clone() };
        let store = self.open(&Namespace { revision, config, ..namespace.clone() }).await?;
        // No event can come any more that the counters' readers would not find here, and no archiver continues.
        let reached = self.reached(&namespace).await?;
        if let Err(refusal) = check_archive(&namespace, &reached, right_ms) {
            // An archiver was faster. The shards follow the reserved revision, so the registry has to have it, too.
            self.publish(name, &namespace, revision).await?;
            return Err(refusal);
        }
        for shard in 0..SHARDS {
            store.fence(shard, reached.counted_to_ms, None).await?;
        }
        let known = store.count_all().await?;
        let mut fence_ms = (self.right_ms().await? / WINDOW_MS + 1) * WINDOW_MS;
        // A stale rollup that started from a checkpoint of this time must lose its compare-and-set.
        while known.contains(&fence_ms) {
            fence_ms += WINDOW_MS;
        }
        if fence_ms < reached.counted_to_ms {
            store.lower_all(reached.counted_to_ms, fence_ms).await?;
        }
        for shard in 0..SHARDS {
            store.fence(shard, fence_ms, Some(reached.latest)).await?;
        }
        self.publish(name, &namespace, revision).await
    }

    /// Gives the namespace the revision that its shards follow.
    async fn publish(&self, name: &NamespaceName, namespace: &Namespace, revision: u64) -> Result<(), Refusal> {
        for _ in 0..TRIES {
            let latest = self.found(name).await?;
            if latest.incarnation != namespace.incarnation {
                return Err(Refusal::Stale);
            }
            match self.replace_at(name, Some(&latest), latest.config.clone(), revision).await {
                Err(Refusal::Stale) => {}
                done => return done.map(drop),
            }
        }
        Err(Refusal::Stale)
    }

    async fn found(&self, name: &NamespaceName) -> Result<Namespace, Refusal> {
        let not_found = || Refusal::NamespaceNotFound { namespace: name.to_string() };
        self.get(name).await?.ok_or_else(not_found)
    }

    /// The store's time, which is right as far as this process knows; of several partitions the latest.
    pub(super) async fn right_ms(&self) -> Result<u64, Refusal> {
        let partitions = self.partitions().all().iter();
        let times = partitions.map(|partition| partition.clock.right_ms(partition.any_link()));
        Ok(try_join_all(times).await?.into_iter().max().unwrap_or_default())
    }

    async fn reached(&self, namespace: &Namespace) -> Result<Reached, Refusal> {
        let mut reached = Reached::default();
        for shard in 0..SHARDS {
            let (tag, partition) = (namespace.tag(), self.partitions().of(&namespace.tag(), shard));
            let key = CounterShardKeys::within(&partition.keyspace, &tag, shard).key("state");
            let answer = partition.link(shard).call(redis::cmd("GET").arg(key)).await.map_err(of_link)?;
            let Value::BulkString(state) = answer else { continue };
            let number = |field: std::ops::Range<usize>| state.get(field).map(read).ok_or_else(|| defect("no state"));
            let (latest, sealed_to_ms) = (number(STATE_LATEST)?, number(STATE_SEALED_TO)?);
            reached.revision = reached.revision.max(number(STATE_REVISION)?);
            reached.latest = reached.latest.max(latest);
            reached.counted_to_ms = reached.counted_to_ms.max(sealed_to_ms).max((latest + 1) * WINDOW_MS);
            reached.archived_to_ms = reached.archived_to_ms.max(number(STATE_PRUNED)?);
            for fence in [STATE_SEALED_TO, STATE_OPEN, STATE_SHOWN, STATE_PRUNED] {
                reached.fence_ms = reached.fence_ms.max(number(fence)?);
            }
        }
        Ok(reached)
    }
}

/// # Errors
/// [`Refusal::Invalid`]: the archive has events of later times than a reset leaves to the log.
fn check_archive(namespace: &Namespace, reached: &Reached, right_ms: u64) -> Result<(), Refusal> {
    let to_ms = reached.archived_to_ms;
    if !namespace.config.archived || to_ms <= (right_ms / WINDOW_MS + 1) * WINDOW_MS {
        return Ok(());
    }
    let why = format!(
        "has an archive that is ahead of Redis's clock, and a reset would lose its events: possible in {} ms, at {to_ms}",
        to_ms - right_ms
    );
    Err(Refusal::invalid("namespace", why))
}

impl RedisNamespace {
    /// Raises the seal of a shard to a time; or, with the latest window that may have an event, sets its fences back to it.
    async fn fence(&self, shard: u16, fence_ms: u64, latest: Option<u64>) -> Result<(), Refusal> {
        let mut command = self.log_call(CounterScript::Fence, shard, &self.keys(shard).log());
        command.arg(fence_ms).arg(latest.map(|window| window.to_string()).unwrap_or_default());
        let reply = self.run_any(shard, &command).await?;
        match reply.answer {
            CounterAnswer::Ok => Ok(()),
            CounterAnswer::Stale | CounterAnswer::NoShard => Err(Refusal::Stale),
            _ => Err(Refusal::Unavailable { applied: Applied::Unknown, why: "an event has come meanwhile".to_owned() }),
        }
    }

    /// Rolls up every counter to where the shards are sealed, and settles it. Returns the times to which the checkpoints
    /// before were exact.
    async fn count_all(&self) -> Result<BTreeSet<u64>, Refusal> {
        let (mut token, mut known) = (String::new(), BTreeSet::new());
        loop {
            let page = self.list_all(&token, PAGE).await?;
            for listed in page.counters.chunks(PAGE) {
                known.extend(listed.iter().map(|listed| listed.checkpoint.exact_to_ms));
                // The lease of each checkpoint's own: no other rollup may have a later one.
                let job =
                    |counter: &CounterName, before: &Checkpoint| Job { counter: counter.clone(), lease: before.lease };
                let jobs: Vec<Job> = listed.iter().map(|listed| job(&listed.counter, &listed.checkpoint)).collect();
                for result in roll_up(self, self, &jobs).await {
                    if result? == RolledUp::Lost {
                        let why = "another rollup has committed meanwhile".to_owned();
                        return Err(Refusal::Unavailable { applied: Applied::Unknown, why });
                    }
                }
                self.settle_counted(jobs.into_iter().map(|job| job.counter).collect()).await?;
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(known),
            }
        }
    }

    /// Settles what a rollup has committed before it died.
    async fn settle_counted(&self, counters: Vec<CounterName>) -> Result<(), Refusal> {
        let checkpoints = self.read(&counters).await?;
        let settled = |(counter, checkpoint): (&CounterName, Checkpoint)| settlement(counter, &checkpoint, &[]);
        let settlements: Vec<Settlement> = counters.iter().zip(checkpoints).map(settled).collect();
        self.settle(&settlements).await
    }

    /// Checkpoints that are exact to `from_ms` become exact to `to_ms`.
    async fn lower_all(&self, from_ms: u64, to_ms: u64) -> Result<(), Refusal> {
        let mut token = String::new();
        loop {
            let page = self.list_all(&token, PAGE).await?;
            let counters: Vec<CounterName> = page.counters.into_iter().map(|listed| listed.counter).collect();
            for (shard, numbers) in homes(counters.iter()) {
                let mut command = self.log_call(CounterScript::Lower, shard, &self.commit_keys(shard));
                command.arg(from_ms).arg(to_ms);
                for number in numbers {
                    command.arg(counters[number].as_str());
                }
                self.run(shard, &command).await?;
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }
}
