//! A subscription as its gRPC call sees it.

use super::call::SubscriptionId;
use super::command::Command;
use super::granted::LeaseReturn;
use super::lanes::Lanes;
use super::subscription::{EventSender, Submission, Subscription};
use crate::tenants::Taken;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::store::{DequeueRequest, LeaseRef, Release, Verdict};
use tallystone_model::{Lease, MessageId, Shard};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// With fewer leases than this, none is forgotten that has ended without a word of its worker.
const FORGET_MIN: usize = 1_024;
/// How long after its end, as far as is known, a lease is forgotten then. The store may know of a later end.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A subscription as its gRPC call sees it. When it is dropped, it releases the leases that the worker has not finished,
/// if the worker requested `release_on_close`. Leases that the worker never received are released in any case.
pub(crate) struct WorkSession {
    lanes: Arc<Lanes>,
    shard: Shard,
    id: SubscriptionId,
    /// Until its first request.
    waiting: Option<Box<Subscription>>,
    /// Leases that the worker has received and not finished.
    held: HashMap<MessageId, Held>,
    /// Whether they are released when the subscription ends; otherwise they stay until they expire.
    release_on_close: bool,
    /// With more than this number of them, those that have ended are forgotten.
    forget_at: usize,
    /// Fencing tokens of leases that the subscription does not have any more. The lane learns them with the next request.
    over: Vec<u64>,
    _places: SessionPlaces,
}

/// A lease that the worker has received.
struct Held {
    fencing_token: u64,
    /// The Completes and Releases of the worker that have no result yet.
    ends: usize,
    expires_at_ms: u64,
    /// It has ended then, unless it was extended elsewhere.
    forget_after: Instant,
}

/// The places of a subscription, free again when it ends.
pub(super) struct SessionPlaces {
    /// Among all of this server.
    pub(super) _of_server: OwnedSemaphorePermit,
    /// Among those of the queue's tenant.
    pub(super) _of_tenant: Option<Taken>,
}

impl WorkSession {
    /// Subscribes to the shard. Its lane gets the subscription with its first request: the lane of a queue that no worker
    /// uses, or that does not exist, is not started.
    pub(super) fn open(
        lanes: &Arc<Lanes>,
        shard: Shard,
        request: DequeueRequest,
        release_on_close: bool,
        events: EventSender,
        places: SessionPlaces,
    ) -> Self {
        let (id, waiting) = (SubscriptionId::next(), Some(Box::new(Subscription::new(request, events))));
        let (lanes, held, over) = (lanes.clone(), HashMap::new(), Vec::new());
        let forget_at = FORGET_MIN;
        WorkSession { lanes, shard, id, waiting, held, forget_at, over, release_on_close, _places: places }
    }

    /// Sends a request to the lane.
    pub(crate) fn submit(&mut self, mut submission: Submission) {
        let completed = submission.complete.iter().map(|completion| &completion.lease);
        for lease in completed.chain(submission.release.iter().map(|release| &release.lease)) {
            if let Some(held) = self.held_mut(lease) {
                held.ends += 1;
            }
        }
        submission.over = std::mem::take(&mut self.over);
        if let Some(subscription) = self.waiting.take() {
            self.lanes.send(&self.shard, Command::Subscribe(self.id, subscription));
        }
        self.lanes.send(&self.shard, Command::Submit(self.id, Box::new(submission)));
    }

    /// Accepts no more leases from now on; results still arrive. Nothing is submitted any more.
    pub(crate) fn stop(&self) {
        if self.waiting.is_none() {
            self.lanes.send(&self.shard, Command::StopSubscription(self.id));
        }
    }

    /// Records that the lease is being sent to the worker.
    pub(crate) fn handed_over(&mut self, lease: &Lease) {
        let forget_after = Instant::now() + Duration::from_millis(lease.left_ms) + FORGET_AFTER;
        let (fencing_token, expires_at_ms) = (lease.fencing_token, lease.expires_at_ms);
        let held = Held { fencing_token, ends: 0, expires_at_ms, forget_after };
        // An earlier lease of the message has ended.
        self.over.extend(self.held.insert(lease.id.clone(), held).map(|earlier| earlier.fencing_token));
        if self.held.len() > self.forget_at {
            self.forget_ended();
        }
    }

    /// Forgets leases that have ended: their worker has sent nothing for them, or not over this stream.
    fn forget_ended(&mut self) {
        let (now, over) = (Instant::now(), &mut self.over);
        self.held.retain(|_, held| {
            let stays = held.forget_after > now;
            if !stays {
                over.push(held.fencing_token);
            }
            stays
        });
        self.forget_at = FORGET_MIN.max(2 * self.held.len());
    }

    /// Releases leases that were not sent to the worker: they were no attempts. `reason`: for people.
    pub(crate) fn give_back(&mut self, leases: impl IntoIterator<Item = Lease>, reason: &'static str) {
        let leases: Vec<LeaseRef> = leases.into_iter().map(|lease| LeaseRef::from(&lease)).collect();
        self.over.extend(leases.iter().map(|lease| lease.fencing_token));
        self.lanes.give_back(&self.shard, leases, reason);
    }

    /// Records that the worker has finished this lease, or has lost it.
    pub(crate) fn finished(&mut self, lease: &LeaseRef) {
        if self.holds(lease) {
            self.held.remove(&lease.id);
            self.over.push(lease.fencing_token);
        }
    }

    /// Records that a Complete or a Release of this lease may not have happened.
    pub(crate) fn stays(&mut self, lease: &LeaseRef) {
        if let Some(held) = self.held_mut(lease) {
            held.ends = held.ends.saturating_sub(1);
        }
    }

    /// Records that this lease ends later.
    pub(crate) fn extended(&mut self, lease: &LeaseRef, expires_at_ms: u64) {
        if let Some(held) = self.held_mut(lease) {
            held.forget_after += Duration::from_millis(expires_at_ms.saturating_sub(held.expires_at_ms));
            held.expires_at_ms = expires_at_ms;
        }
    }

    /// Whether the worker has received this lease, and not finished it.
    pub(crate) fn holds(&self, lease: &LeaseRef) -> bool {
        self.held.get(&lease.id).is_some_and(|held| held.fencing_token == lease.fencing_token)
    }

    fn held_mut(&mut self, lease: &LeaseRef) -> Option<&mut Held> {
        self.held.get_mut(&lease.id).filter(|held| held.fencing_token == lease.fencing_token)
    }
}

impl Drop for WorkSession {
    fn drop(&mut self) {
        // A Complete that was sent takes precedence. The lane may execute a large one in parts, and this between them.
        if self.release_on_close {
            let unfinished = std::mem::take(&mut self.held).into_iter().filter(|(_, held)| held.ends == 0);
            // The worker has got these, so they were attempts.
            let release = |(id, held): (MessageId, Held)| Release {
                lease: LeaseRef { id, fencing_token: held.fencing_token },
                delay_ms: Some(0),
                reason: "stream closed".to_owned(),
                verdict: Verdict::Retry,
            };
            self.lanes.release(&self.shard, unfinished.map(release).collect());
        }
        if self.waiting.is_none() {
            self.lanes.send(&self.shard, Command::Unsubscribe(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::WorkEvents;
    use crate::engine::tests::{HOUR, Rig, id_of, queue, request};
    use crate::testing::shard_of;
    use std::sync::Mutex;
    use tokio::sync::Semaphore;
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::time::advance;

    /// A lease of the message `m`.
    async fn lease(rig: &Rig) -> Lease {
        rig.enqueue("q", &["m"]).await;
        rig.wait("q", HOUR).await.unwrap().unwrap().remove(0)
    }

    #[tokio::test(start_paused = true)]
    async fn q7_a_session_forgets_leases_that_have_ended_without_a_word_of_their_worker() {
        let (rig, events) = (Rig::with_queues(&["q"]).await, WorkEvents::new());
        let first = lease(&rig).await;
        let lease = |n: usize| Lease { id: id_of(&format!("m{n}")), fencing_token: n as u64, ..first.clone() };
        let mut session = rig.engine.work(&queue("q"), request(0), true, events.sender(0)).unwrap();
        (1..=FORGET_MIN).for_each(|n| session.handed_over(&lease(n)));
        session.extended(&LeaseRef::from(&lease(1)), first.expires_at_ms + HOUR.as_millis() as u64);
        advance(Duration::from_millis(first.left_ms) + FORGET_AFTER).await;
        assert_eq!((session.held.len(), session.over.len()), (FORGET_MIN, 0));
        session.handed_over(&lease(FORGET_MIN + 1));
        assert_eq!((session.held.len(), session.over.len()), (2, FORGET_MIN - 1));
        assert!(session.holds(&LeaseRef::from(&lease(1))) && session.holds(&LeaseRef::from(&lease(FORGET_MIN + 1))));
    }

    #[tokio::test(start_paused = true)]
    async fn q23_the_lane_learns_with_the_next_request_which_leases_are_over() {
        let (rig, events) = (Rig::with_queues(&["q"]).await, WorkEvents::new());
        let lease = lease(&rig).await;
        let started: Arc<Mutex<Option<UnboundedReceiver<Command>>>> = Arc::default();
        let lanes = Lanes::new({
            let started = started.clone();
            move |_, _, commands| drop(started.lock().unwrap().replace(commands))
        });
        let of_server = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let places = SessionPlaces { _of_server: of_server, _of_tenant: None };
        let mut session = WorkSession::open(&lanes, shard_of("q"), request(0), true, events.sender(0), places);
        let submit = |session: &mut WorkSession| {
            session.submit(Submission { credits: 1, ..Submission::default() });
            let mut commands = started.lock().unwrap();
            let mut seen = Vec::new();
            while let Ok(command) = commands.as_mut().unwrap().try_recv() {
                if let Command::Submit(_, submission) = command {
                    seen.extend(submission.over);
                }
            }
            seen
        };
        session.handed_over(&lease);
        assert!(submit(&mut session).is_empty());
        session.finished(&LeaseRef::from(&lease));
        session.finished(&LeaseRef::from(&lease));
        assert_eq!(submit(&mut session), [lease.fencing_token]);
        // One that was not sent to the worker, and the lease before the one of now.
        session.give_back([Lease { fencing_token: 7, ..lease.clone() }], "");
        session.handed_over(&Lease { fencing_token: 8, ..lease.clone() });
        session.handed_over(&lease);
        assert_eq!(submit(&mut session), [7, 8]);
        assert!(submit(&mut session).is_empty());
    }
}
