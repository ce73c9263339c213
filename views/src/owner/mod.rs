//! The owner of a partition: it deduplicates the views, and sends what they add to the counters. One process owns a
//! partition at a time; the scripts of the log refuse what an earlier owner still sends.
//!
//! What lives here: the loop of an owner, the bound of its state (`memory`), which records of deltas wait (`sending`), the
//! `sink`. What may not: HTTP.

mod memory;
mod sending;
mod sink;

pub(crate) use memory::{PairsMemory, PartitionMemory};
pub(crate) use sink::Sink;
pub use sink::counts_config;

use crate::config::ViewNamespace;
use crate::counting::{Counting, Taken};
use crate::log::{Acquired, Commit, Entry, OwnerError, Ownership, Partition, ViewLog};
use crate::metrics;
use sending::Sending;
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::StreamId;
use tallystone_model::Refusal;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Entries of the log that are read at once. An entry has at most some thousands of views.
const ENTRIES_MAX: usize = 64;
/// A commit covers no more entries when it has so many bytes of views, or has gathered for so long.
const VIEWS_BYTES_MAX: usize = 8 * 1_024 * 1_024;
const GATHER_MAX: Duration = Duration::from_secs(1);
/// A commit follows another one after this time at least: a viral video is one add in each.
const COMMIT_EVERY: Duration = Duration::from_millis(50);
/// How often an owner without new views reads the log: other processes append, too.
const IDLE: Duration = Duration::from_millis(200);
/// How often an owner without new views commits whether it has memory for more pairs.
const COMMIT_IDLE_EVERY: Duration = Duration::from_secs(1);
/// How often the sender reads whether deltas wait, if no commit notifies it.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// How often an owner renews its lease while the lease lasts.
const RENEWALS: u32 = 5;
/// How often an owner of pairs advances the time of a log that gets no views: only that ends their windows, and so frees them.
const ADVANCE_EVERY: Duration = Duration::from_secs(5);
/// While the sender has not taken deltas that wait, the next commit comes when the sender takes them, or after this time. An earlier
/// commit would make no count visible.
const COMMIT_BEHIND: Duration = Duration::from_secs(1);
/// The pause before a failed call is repeated, and between two attempts to take a partition over.
const PAUSE: Duration = Duration::from_millis(200);

/// What owners work with.
pub(crate) struct Owner {
    pub(crate) log: Arc<ViewLog>,
    pub(crate) partition: Arc<Partition>,
    pub(crate) namespaces: Vec<ViewNamespace>,
    pub(crate) sink: Arc<Sink>,
    pub(crate) memory: Arc<PairsMemory>,
    /// Notified when this process has appended.
    pub(crate) appended: Arc<Notify>,
    /// Names this process.
    pub(crate) holder: String,
    pub(crate) lease: Duration,
}

/// What an owner has taken from the log.
struct Gathered {
    /// The last entry.
    to: StreamId,
    /// Whether it was the last one of the log.
    is_all: bool,
}

impl Owner {
    /// Owns the partition whenever no other process does, until the token is cancelled.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        while let Some(owner) = stopping.run_until_cancelled(self.acquire()).await {
            let work = self.work(owner);
            let Some(error) = stopping.run_until_cancelled(work).await else {
                // Without it the next owner waits for the lease.
                if let Err(error) = self.partition.release(&owner).await {
                    tracing::debug!(%error, "the partition is not released");
                }
                return;
            };
            let partition = self.partition.number();
            match error {
                OwnerError::Fenced => tracing::info!(partition, "another process owns the partition"),
                OwnerError::Log(error) => tracing::warn!(partition, %error, "the log of views cannot be used"),
            }
            sleep(PAUSE).await;
        }
    }

    async fn acquire(&self) -> Ownership {
        loop {
            let acquired = match self.partition.acquire(&self.holder, self.lease).await {
                // In an emptied log every pair would count once more.
                Ok(Acquired::Owned(owner)) => self.log.verify().await.map(|()| Acquired::Owned(owner)),
                other => other,
            };
            match acquired {
                Ok(Acquired::Owned(owner)) => return owner,
                Ok(Acquired::Held(left)) => sleep(left.min(PAUSE)).await,
                Err(error) => {
                    tracing::debug!(partition = self.partition.number(), %error, "the partition is not acquired");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Works until that fails.
    async fn work(&self, owner: Ownership) -> OwnerError {
        let sending = Sending::default();
        let done: Result<((), (), ()), OwnerError> =
            tokio::try_join!(self.deduplicate(owner, &sending), self.send(owner, &sending), self.renew(&owner));
        metrics::pairs(self.partition.number(), (0, 0));
        metrics::oldest_delta(self.partition.number(), None);
        done.err().unwrap_or(OwnerError::Fenced)
    }

    async fn deduplicate(&self, owner: Ownership, sending: &Sending) -> Result<(), OwnerError> {
        let mut counting = self.read_pairs().await?;
        let (mut position, mut committed_at) = (owner.position, Instant::now());
        let mut advanced_at = committed_at;
        let mut memory = self.memory.partition();
        loop {
            let gathered = self.gather(&mut counting, position).await?;
            if gathered.to == position && committed_at.elapsed() < COMMIT_IDLE_EVERY {
                // Late by this at most if another process has appended.
                let _ = timeout(IDLE, self.appended.notified()).await;
                continue;
            }
            let size = counting.size();
            let is_full = memory.set(size.1);
            self.commit(&owner, (position, gathered.to), counting.commit(gathered.to.ms), is_full, sending).await?;
            let has_views = gathered.to != position;
            (position, committed_at) = (gathered.to, Instant::now());
            if has_views {
                self.log.reached("a commit is durable");
            }
            metrics::pairs(self.partition.number(), size);
            metrics::oldest_delta(self.partition.number(), sending.oldest());
            if has_views {
                advanced_at = committed_at;
            } else if size.0 > 0 && advanced_at.elapsed() >= ADVANCE_EVERY {
                advanced_at = committed_at;
                if let Err(error) = self.partition.advance().await {
                    tracing::debug!(%error, "the time of the log does not advance");
                }
            }
            if gathered.is_all {
                sleep(COMMIT_EVERY).await;
                sending.is_free(COMMIT_BEHIND).await;
            }
        }
    }

    /// Takes the entries of the log behind a position: all that are there, unless they are more than a commit covers.
    async fn gather(&self, counting: &mut Counting, position: StreamId) -> Result<Gathered, OwnerError> {
        let (began, mut bytes, mut to) = (Instant::now(), 0, position);
        loop {
            let entries = until_answered(|| self.partition.read(to, ENTRIES_MAX)).await?;
            if !entries.is_empty() {
                self.log.reached("views are read");
            }
            for Entry { position, views } in &entries {
                counting.take(self.log.hasher(), position.ms, views);
                (to, bytes) = (*position, bytes + views.len());
            }
            let is_all = entries.len() < ENTRIES_MAX;
            if is_all || bytes >= VIEWS_BYTES_MAX || began.elapsed() >= GATHER_MAX {
                return Ok(Gathered { to, is_all });
            }
        }
    }

    /// Commits what views between two positions have added. While the sender has not taken the records of earlier commits, the new one
    /// replaces them: however slow the counters are, a few adds of each counter wait, and not one for each commit.
    async fn commit(
        &self,
        owner: &Ownership,
        (from, to): (StreamId, StreamId),
        Taken { deltas, pairs }: Taken,
        is_full: bool,
        sending: &Sending,
    ) -> Result<(), OwnerError> {
        if deltas.is_empty() {
            let commit = Commit { from, to, deltas, replaced: Vec::new(), pairs };
            until_answered(|| self.partition.commit(owner, &commit, is_full)).await?;
            return Ok(());
        }
        let mut unsent = sending.unsent().await;
        let merged = unsent.merge(deltas);
        let commit = Commit { from, to, deltas: merged.deltas, replaced: merged.replaced, pairs };
        let at = until_answered(|| self.partition.commit(owner, &commit, is_full)).await?;
        unsent.committed(at, merged.since_ms, commit.deltas);
        sending.committed.notify_one();
        if !commit.replaced.is_empty() {
            self.log.reached("records are replaced");
        }
        Ok(())
    }

    /// The state at the committed position: the pairs that are in the log.
    async fn read_pairs(&self) -> Result<Counting, OwnerError> {
        let mut counting = Counting::new(&self.namespaces);
        for name in counting.pair_names() {
            if let Some(restored) = counting.restored(&name) {
                self.partition.pairs(&name, restored).await?;
            }
        }
        Ok(counting)
    }

    /// Renews the lease until that fails, also while pairs are read or views gather for longer than it lasts.
    async fn renew(&self, owner: &Ownership) -> Result<(), OwnerError> {
        loop {
            until_answered(|| self.partition.renew(owner)).await?;
            sleep(self.lease / RENEWALS).await;
        }
    }

    async fn send(&self, owner: Ownership, sending: &Sending) -> Result<(), OwnerError> {
        let number = self.partition.number();
        let mut settled = owner.settled;
        // Only what this owner settles leaves a late record, and an earlier owner may have.
        let mut may_be_late = true;
        loop {
            let late = match may_be_late {
                true => until_answered(|| self.partition.late_deltas(settled.late)).await?,
                false => None,
            };
            let next = match late {
                None => sending.take(until_answered(|| self.partition.next_deltas(settled.deltas))).await?,
                // It is younger than what waits behind it.
                late => late,
            };
            let Some(waiting) = next else {
                let _ = timeout(SEND_EVERY, sending.committed.notified()).await;
                continue;
            };
            let (at, is_late) = (waiting.at, waiting.is_late);
            let again = self.sink.send(number, waiting, || self.log.reached("some deltas are counted")).await;
            self.log.reached("a record of deltas is counted");
            metrics::sent_again(&again);
            until_answered(|| self.partition.settle(&owner, settled, (is_late, at), &again)).await?;
            self.log.reached("a record of deltas is settled");
            if is_late {
                settled.late = at
            } else {
                settled.deltas = at
            }
            may_be_late = !again.is_empty();
            if is_late && may_be_late {
                tracing::warn!(
                    partition = number,
                    "new deltas come too late: the counters are slow, or their clock is ahead of this log's"
                );
                sleep(PAUSE).await;
            }
        }
    }
}

/// Repeats a call of the log until it has an answer.
async fn until_answered<T, F>(call: impl Fn() -> F) -> Result<T, OwnerError>
where
    F: Future<Output = Result<T, OwnerError>>,
{
    loop {
        match call().await {
            // A refusal because of the clock has changed nothing, and the witness has logged it.
            Err(OwnerError::Log(refusal @ (Refusal::Unavailable { .. } | Refusal::ClockSkew { .. }))) => {
                tracing::debug!(%refusal, "the log of views does not answer, or its clock is wrong");
                sleep(PAUSE).await;
            }
            answered => return answered,
        }
    }
}
