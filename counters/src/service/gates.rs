//! Which rollup queues accept jobs. A queue that has refused one (it is full or closed) is not sent more, except a single job
//! from time to time, until it accepts that. A queue that is unavailable is tried with all jobs, once a second.

use crate::names::NamespaceName;
use std::time::Duration;
use tokio::time::Instant;

/// The first and the longest pause before a queue that refuses jobs is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause before a queue that is unavailable is tried again.
pub(super) const AWAY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why a queue has no job of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It has answered that it does not accept the job.
    Refused,
    /// It has not answered, and accepts all jobs when it is back.
    Away,
}

/// A queue that refuses jobs.
#[derive(Clone, Copy)]
struct Shut {
    try_at: Instant,
    pause: Duration,
    by: Obstacle,
}

/// The time between two log lines about queues that refuse jobs: a full queue with slow workers does so all the time.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// The rollup queues of one namespace, by their numbers.
pub(super) struct Gates {
    namespace: NamespaceName,
    queues: Vec<Option<Shut>>,
    /// For each queue: the latest time at which a job that it has accepted was enqueued (Unix ms, by the queue's clock).
    newest_ms: Vec<u64>,
    logged_at: Option<Instant>,
}

impl Gates {
    /// All accept jobs.
    pub(super) fn new(namespace: NamespaceName, num_queues: u16) -> Gates {
        let count = usize::from(num_queues);
        Gates { namespace, queues: vec![None; count], newest_ms: vec![0; count], logged_at: None }
    }

    /// How many jobs the queue may be sent now.
    pub(super) fn allows(&self, number: u16) -> usize {
        match self.queues[usize::from(number)] {
            None => usize::MAX,
            Some(shut) if shut.try_at > Instant::now() => 0,
            Some(Shut { by: Obstacle::Away, .. }) => usize::MAX,
            Some(_) => 1,
        }
    }

    /// What keeps jobs from the queue; `None`: nothing, as far as is known.
    pub(super) fn obstacle(&self, number: u16) -> Option<Obstacle> {
        self.queues[usize::from(number)].map(|shut| shut.by)
    }

    /// When the first queue is tried again, if none accepts jobs.
    pub(super) fn all_shut_until(&self) -> Option<Instant> {
        self.queues.iter().map(|shut| shut.map(|shut| shut.try_at)).min().flatten()
    }

    /// The queue has accepted jobs; the latest was enqueued at this time (Unix ms). A job that was there already says
    /// nothing of the queue's room.
    pub(super) fn accepted(&mut self, number: u16, enqueued_at_ms: u64) {
        let (shut, newest_ms) = (&mut self.queues[usize::from(number)], &mut self.newest_ms[usize::from(number)]);
        if enqueued_at_ms > *newest_ms || shut.is_some_and(|shut| shut.by == Obstacle::Away) {
            (*newest_ms, *shut) = (enqueued_at_ms.max(*newest_ms), None);
        } else if let Some(shut) = shut {
            shut.try_at = Instant::now() + shut.pause;
        }
    }

    /// The queue has accepted no job, or not all. That is logged once a minute, not for each queue and job.
    pub(super) fn refused(&mut self, number: u16, by: Obstacle, why: &str) {
        if self.logged_at.is_none_or(|at| at.elapsed() >= REPEAT_AFTER) {
            self.logged_at = Some(Instant::now());
            tracing::warn!(namespace = %self.namespace, number, why, "a rollup queue refuses jobs: their counters wait");
        }
        let shut = &mut self.queues[usize::from(number)];
        let pause_max = match by {
            Obstacle::Refused => PAUSE_MAX,
            Obstacle::Away => AWAY_PAUSE_MAX,
        };
        let pause = shut.map_or(PAUSE_MIN, |shut| (shut.pause * 2).min(pause_max));
        *shut = Some(Shut { try_at: Instant::now() + pause, pause, by });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates() -> Gates {
        Gates::new(NamespaceName::parse("n").unwrap(), 2)
    }

    #[tokio::test(start_paused = true)]
    async fn n9_a_queue_that_refuses_is_sent_one_job_at_a_time_and_less_and_less() {
        let mut gates = gates();
        assert_eq!((gates.allows(0), gates.all_shut_until()), (usize::MAX, None));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            gates.refused(0, Obstacle::Refused, "full");
            assert_eq!((gates.allows(0), gates.allows(1)), (0, usize::MAX));
            let begin = Instant::now();
            while gates.allows(0) == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(gates.allows(0), 1);
            pauses.push(begin.elapsed().as_millis());
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        gates.accepted(0, 7);
        assert_eq!(gates.allows(0), usize::MAX);
        gates.refused(0, Obstacle::Refused, "full");
        tokio::time::sleep(PAUSE_MIN).await;
        assert_eq!(gates.allows(0), 1, "the pauses begin again");
        // This job was there already: the queue may be full.
        gates.accepted(0, 7);
        assert_eq!(gates.allows(0), 0);
        tokio::time::sleep(PAUSE_MIN).await;
        assert_eq!(gates.allows(0), 1);
        gates.accepted(0, 8);
        assert_eq!(gates.allows(0), usize::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn n9_a_queue_that_is_unavailable_gets_all_jobs_soon_after_it_is_back() {
        let mut gates = gates();
        gates.accepted(0, 7);
        for pause in [PAUSE_MIN, AWAY_PAUSE_MAX, AWAY_PAUSE_MAX] {
            gates.refused(0, Obstacle::Away, "no answer");
            assert_eq!((gates.allows(0), gates.obstacle(0)), (0, Some(Obstacle::Away)));
            tokio::time::sleep(pause).await;
            assert_eq!(gates.allows(0), usize::MAX);
        }
        // A job that was there already shows that it is back, too.
        gates.accepted(0, 7);
        assert_eq!((gates.allows(0), gates.obstacle(0)), (usize::MAX, None));
    }

    #[tokio::test(start_paused = true)]
    async fn n9_only_where_no_queue_accepts_jobs_there_is_a_time_to_wait_for() {
        let mut gates = gates();
        gates.refused(1, Obstacle::Refused, "full");
        assert_eq!(gates.all_shut_until(), None);
        let first = Instant::now() + PAUSE_MIN;
        tokio::time::sleep(PAUSE_MIN / 2).await;
        gates.refused(0, Obstacle::Refused, "full");
        assert_eq!(gates.all_shut_until(), Some(first));
        gates.accepted(1, 1);
        assert_eq!(gates.all_shut_until(), None);
    }
}
