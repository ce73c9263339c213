//! The leader leases of background jobs: one server at a time does a job of the store.
//!
//! A lease is in the first partition that answers (decision 0130). Servers that reach different partitions may both be
//! leaders for a while, so no job relies on its lease.

use super::redis_store::RedisStore;
use super::shared::Shared;
use futures::future;
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_lua::Script;
use tallystone_model::{Applied, Refusal};
use tokio::time::timeout;

/// The longest wait for a partition, of several.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the partitions answered to the caller of a leader lease, in their order: the errors of those that do not answer, then
/// the first answer, if there is one.
pub struct LeaseAnswers(Vec<Result<bool, Refusal>>);

impl LeaseAnswers {
    /// The answer of a store that is one partition. `Ok(false)`: another server holds the lease.
    pub fn of_whole(answer: Result<bool, Refusal>) -> Self {
        LeaseAnswers(vec![answer])
    }

    /// Each partition, from the first on, with its answer.
    pub fn by_partition(&self) -> impl Iterator<Item = (u16, &Result<bool, Refusal>)> {
        (0..).zip(&self.0)
    }

    /// The partition that has granted the lease; `None`: another server holds it.
    ///
    /// # Errors
    /// That of the first partition: none answers.
    pub fn granted_by(self) -> Result<Option<u16>, Refusal> {
        let answered = self.0.iter().position(Result::is_ok);
        let number = answered.unwrap_or_default();
        let is_granted = self.0.into_iter().nth(number).unwrap_or(Ok(false))?;
        Ok(is_granted.then_some(u16::try_from(number).unwrap_or(u16::MAX)))
    }
}

impl RedisStore {
    /// Acquires or renews the leader lease of a background job, for `lease_ms`, in the first partition that answers. It waits
    /// for a partition, of several, for a third of this time at most. While the first one does not answer, it calls all of
    /// them at once, so that the holder renews the lease in time whichever partitions answer.
    pub async fn acquire_leader_lease(&self, job: &str, owner: &str, lease_ms: u64) -> LeaseAnswers {
        let partitions = match self.partitions() {
            [whole] => return LeaseAnswers::of_whole(whole.acquire_leader_lease(job, owner, lease_ms).await),
            partitions => partitions,
        };
        let patience = (Duration::from_millis(lease_ms) / 3).min(PATIENCE);
        let acquire = |partition| acquire_within(patience, partition, job, owner, lease_ms);
        let mut answers = Vec::new();
        if self.first_answers().load(Ordering::Relaxed) {
            answers.push(acquire(&partitions[0]).await);
        }
        if !answers.first().is_some_and(Result::is_ok) {
            let rest = &partitions[answers.len()..];
            answers.extend(future::join_all(rest.iter().map(acquire)).await);
        }
        self.first_answers().store(answers[0].is_ok(), Ordering::Relaxed);
        let decides = answers.iter().position(Result::is_ok).map_or(answers.len(), |first| first + 1);
        answers.truncate(decides);
        LeaseAnswers(answers)
    }

    /// Ends the leader lease, so that another server need not wait until it runs out.
    ///
    /// # Errors
    /// A partition does not answer; a lease in it will run out.
    pub async fn release_leader_lease(&self, job: &str, owner: &str) -> Result<(), Refusal> {
        // The shortest lease there is: so a release needs no other script.
        let released = self.partitions().iter().map(|partition| acquire_within(PATIENCE, partition, job, owner, 1));
        future::join_all(released).await.into_iter().try_for_each(|released| released.map(drop))
    }
}

/// Acquires a lease in a task: a caller that goes away would end an attempt to connect that others wait for.
async fn acquire_within(
    patience: Duration,
    partition: &Arc<Shared>,
    job: &str,
    owner: &str,
    lease_ms: u64,
) -> Result<bool, Refusal> {
    let (partition, job, owner) = (partition.clone(), job.to_owned(), owner.to_owned());
    let acquired = tokio::spawn(async move { partition.acquire_leader_lease(&job, &owner, lease_ms).await });
    match timeout(patience, acquired).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(Refusal::Internal(panic.to_string())),
        Err(_) => {
            let why = "Redis did not answer in the time of a leader lease".to_owned();
            Err(Refusal::Unavailable { applied: Applied::Unknown, why })
        }
    }
}

impl Shared {
    async fn acquire_leader_lease(&self, job: &str, owner: &str, lease_ms: u64) -> Result<bool, Refusal> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::AcquireLeaderLease.sha1()).arg(1).arg(self.keyspace.leader_lease(job));
        let clock = &self.options.clock;
        clock.stamp(&mut command);
        command.arg(owner).arg(lease_ms);
        Ok(clock.eval(&self.link, &command, false).await? == Value::Int(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(why: &str) -> Result<bool, Refusal> {
        Err(Refusal::Unavailable { applied: Applied::Unknown, why: why.to_owned() })
    }

    #[test]
    fn the_first_partition_that_answers_decides() {
        assert_eq!(LeaseAnswers::of_whole(Ok(true)).granted_by(), Ok(Some(0)));
        assert_eq!(LeaseAnswers::of_whole(Ok(false)).granted_by(), Ok(None));
        let third = |answer| LeaseAnswers(vec![away("a"), away("b"), answer]);
        assert_eq!(third(Ok(true)).granted_by(), Ok(Some(2)));
        assert_eq!(third(Ok(false)).granted_by(), Ok(None));
        assert_eq!(third(away("c")).granted_by().map(|_| false), away("a"));
        assert_eq!(
            third(Ok(true)).by_partition().map(|(number, answer)| (number, answer.is_ok())).last(),
            Some((2, true))
        );
    }
}
