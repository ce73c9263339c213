//! The load on one queue: producers, workers of every kind, operators and readers, through both servers. Each writes
//! down what it saw.

use super::history::{End, Recorder, What};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::*;
use tokio::sync::watch;
use tokio::time::sleep;

pub(crate) const KEY: &str = "tail";
pub(crate) const ORIGIN: &str = "origin";
const ORIGINS: [&str; 3] = ["EWR", "JFK", "LGA"];
/// Few, so that messages wait for their key.
const KEYS: usize = 24;
/// Producers pause while this number of messages waits, so that workers compete for the same ones.
const BACKLOG: usize = 150;
/// The shortest lease that a queue allows.
const SHORT_LEASE_MS: u64 = 1_000;
const LEASE_MS: u64 = 5_000;

/// How far the test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Load,
    /// Workers only.
    Drain,
    Done,
}

/// How a worker treats its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Ends them soon, in every possible way.
    Prompt,
    /// The same, with messages of one origin or two.
    Filtered,
    /// Lets them lapse and tries to complete them then, or extends them and completes in time.
    Slow,
}

/// The load on one queue.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) queue: String,
    pub(crate) exclusive: bool,
    pub(crate) clients: [Client; 2],
    pub(crate) recorder: Recorder,
    pub(crate) phase: watch::Receiver<Phase>,
    ids: Arc<Mutex<Vec<String>>>,
    waiting: Arc<AtomicUsize>,
}

impl Load {
    pub(crate) fn new(queue: &str, exclusive: bool, clients: &[Client; 2], phase: &watch::Receiver<Phase>) -> Self {
        Load {
            queue: queue.to_owned(),
            exclusive,
            clients: clients.clone(),
            recorder: Recorder::new(),
            phase: phase.clone(),
            ids: Arc::default(),
            waiting: Arc::default(),
        }
    }

    fn is(&self, phase: Phase) -> bool {
        *self.phase.borrow() == phase
    }

    fn some_id(&self, rng: &mut StdRng) -> Option<String> {
        let ids = self.ids.lock().unwrap();
        // Mostly of the newest, which are still alive.
        let from = if rng.random_bool(0.8) { ids.len().saturating_sub(BACKLOG) } else { 0 };
        ids[from..].choose(rng).cloned()
    }

    /// Enqueues through one server, and verifies through the other what was acknowledged.
    pub(crate) async fn produce(self, via: usize, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut made = 0;
        while self.is(Phase::Load) {
            if self.waiting.load(Ordering::Relaxed) > BACKLOG {
                sleep(Duration::from_millis(5)).await;
                continue;
            }
            let mut origins = HashMap::new();
            let mut messages = Vec::new();
            for _ in 0..rng.random_range(1..=8) {
                made += 1;
                let origin = *ORIGINS.choose(&mut rng).expect("there are origins");
                let message = NewMessage::new(format!("{via}-{made:05}"), "a message of the histories")
                    .priority(rng.random_range(-100..100))
                    .metadata(ORIGIN, origin)
                    .metadata(KEY, format!("N{}", rng.random_range(0..KEYS)));
                origins.insert(message.id.clone(), origin);
                messages.push(match rng.random_range(0..10) {
                    0 => message.invisibility_ms(rng.random_range(0..300)),
                    1 => message.max_attempts(1),
                    _ => message.max_attempts(50),
                });
            }
            let begin_us = self.recorder.now_us();
            let count = messages.len();
            let results = self.clients[via].enqueue(&self.queue, messages).await.expect("an Enqueue");
            for accepted in results {
                let id = accepted.expect("a good message").id;
                let origin = origins[&id].to_owned();
                self.recorder.record(begin_us, What::Enqueued { id: id.clone(), origin });
                self.ids.lock().unwrap().push(id.clone());
                if rng.random_bool(0.1) {
                    self.verify(1 - via, &id).await;
                }
            }
            self.waiting.fetch_add(count, Ordering::Relaxed);
            if rng.random_bool(0.2) {
                self.count(1 - via, ORIGINS.choose(&mut rng).copied().filter(|_| rng.random_bool(0.5))).await;
            }
        }
    }

    /// GetMessage.
    async fn verify(&self, via: usize, id: &str) {
        let begin_us = self.recorder.now_us();
        let found = match self.clients[via].get_message(&self.queue, id).await {
            Ok(message) => Some((message.state, message.version)),
            Err(Error::Refused(refused)) if refused.reason == "MESSAGE_NOT_FOUND" => None,
            Err(error) => panic!("GetMessage: {error}"),
        };
        self.recorder.record(begin_us, What::Seen { id: id.to_owned(), found });
    }

    /// Depth.
    pub(crate) async fn count(&self, via: usize, origin: Option<&str>) {
        let begin_us = self.recorder.now_us();
        let filter = origin.map(|origin| Filter::equals(ORIGIN, origin));
        let depth = self.clients[via].depth(&self.queue, filter).await.expect("a Depth");
        if origin.is_none() {
            self.waiting.store(usize::try_from(depth.live()).expect("a short queue"), Ordering::Relaxed);
        }
        self.recorder.record(begin_us, What::Counted { origin: origin.map(str::to_owned), depth });
    }

    /// Reads messages through both servers alternately.
    pub(crate) async fn read(self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while self.is(Phase::Load) {
            if let Some(id) = self.some_id(&mut rng) {
                self.verify(0, &id).await;
                self.verify(1, &id).await;
            }
            self.count(rng.random_range(0..2), None).await;
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Cancels, redrives, updates, pauses and resumes.
    pub(crate) async fn operate(self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while self.is(Phase::Load) {
            sleep(Duration::from_millis(rng.random_range(5..25))).await;
            let client = &self.clients[rng.random_range(0..2)];
            let Some(id) = self.some_id(&mut rng) else { continue };
            let begin_us = self.recorder.now_us();
            let changed = match rng.random_range(0..40) {
                0 => {
                    self.pause(client, &self.clients[rng.random_range(0..2)]).await;
                    continue;
                }
                1..6 => {
                    let cancellation = Cancellation::of(&id).force().reason("by the operator");
                    only(client.cancel(&self.queue, vec![cancellation]).await)
                }
                6..20 => only(client.redrive(&self.queue, vec![id.clone()]).await),
                _ => {
                    let patch = MessagePatch { priority: Some(rng.random_range(-100..100)), ..MessagePatch::default() };
                    match client.update_message(&self.queue, &id, patch).await {
                        Err(Error::Refused(refused)) => Err(refused),
                        answer => Ok(answer.expect("an UpdateMessage")),
                    }
                }
            };
            match changed {
                Ok(Transition { state, version }) => {
                    self.recorder.record(begin_us, What::Changed { id, state, version })
                }
                Err(refused) => assert_eq!(refused.reason, "WRONG_STATE", "{refused}"),
            }
        }
    }

    /// Pauses through one server, resumes through another.
    async fn pause(&self, by: &Client, resumed_by: &Client) {
        for (client, blocked, what) in [(by, true, What::Paused), (resumed_by, false, What::Resumed)] {
            let begin_us = self.recorder.now_us();
            let config = QueueConfig { dequeue_blocked: Some(blocked), ..QueueConfig::default() };
            client.update_queue(&self.queue, config).await.expect("an UpdateQueue");
            self.recorder.record(begin_us, what);
            sleep(Duration::from_millis(80)).await;
        }
    }

    /// A worker of unary calls.
    pub(crate) async fn work(self, via: usize, habit: Habit, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let lease_ms = if habit == Habit::Slow { SHORT_LEASE_MS } else { LEASE_MS };
        while !self.is(Phase::Done) {
            let request = Dequeue::new(&self.queue).worker(format!("{habit:?} {seed}")).lease_ms(lease_ms).wait_ms(200);
            let request = match habit {
                Habit::Prompt => request.limit(rng.random_range(1..=4)),
                Habit::Slow => request,
                Habit::Filtered => {
                    let origins = ORIGINS.choose_multiple(&mut rng, 2).take(if seed.is_multiple_of(2) { 1 } else { 2 });
                    origins.fold(request, |request, origin| request.filter(Filter::equals(ORIGIN, *origin)))
                }
            };
            let begin_us = self.recorder.now_us();
            let leases = match self.clients[via].dequeue(request).await {
                Ok(leases) => leases,
                Err(Error::Refused(refused)) if refused.reason == "DEQUEUE_BLOCKED" => {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Err(error) => panic!("Dequeue: {error}"),
            };
            for lease in &leases {
                self.leased(begin_us, lease, lease_ms, false);
            }
            for lease in leases {
                match habit {
                    Habit::Slow => self.dawdle(via, &lease, &mut rng).await,
                    _ => self.settle(via, &lease, &mut rng).await,
                }
            }
        }
    }

    fn leased(&self, begin_us: u64, lease: &Lease, lease_ms: u64, kept: bool) {
        let key = self.exclusive.then(|| lease.metadata[KEY].clone());
        let Lease { id, fencing_token, left_ms, version, .. } = lease.clone();
        self.recorder.record(begin_us, What::Leased { id, key, fencing_token, lease_ms, left_ms, version, kept });
    }

    /// Ends a lease in one of the ways there are.
    async fn settle(&self, via: usize, lease: &Lease, rng: &mut StdRng) {
        // Each verb may go through either server: a lease is the queue's, not a server's.
        let via = if rng.random_bool(0.3) { 1 - via } else { via };
        match rng.random_range(0..20) {
            0 => {
                let release = Release::of(lease).delay_ms(0).reason("another time");
                self.end(lease, self.clients[via].release(&self.queue, vec![release])).await;
            }
            1 => {
                let release = Release::of(lease).delay_ms(rng.random_range(1..200)).reason("later");
                self.end(lease, self.clients[via].release(&self.queue, vec![release])).await;
            }
            2 => {
                self.cancel(via, lease).await;
            }
            3..6 => {
                self.extend(via, lease, LEASE_MS).await;
                self.end(lease, self.clients[1 - via].complete(&self.queue, vec![lease.into()])).await;
            }
            _ => self.end(lease, self.clients[via].complete(&self.queue, vec![lease.into()])).await,
        }
    }

    /// Is late, or just in time.
    async fn dawdle(&self, via: usize, lease: &Lease, rng: &mut StdRng) {
        if rng.random_bool(0.4) {
            self.extend(via, lease, 3 * SHORT_LEASE_MS).await;
        }
        // The work takes longer than the lease was granted for.
        sleep(Duration::from_millis(SHORT_LEASE_MS + rng.random_range(0..300))).await;
        self.end(lease, self.clients[1 - via].complete(&self.queue, vec![lease.into()])).await;
    }

    async fn extend(&self, via: usize, lease: &Lease, lease_ms: u64) {
        let begin_us = self.recorder.now_us();
        let extension = Extension::of(lease).lease_ms(lease_ms);
        let ok = match only(self.clients[via].extend_lease(&self.queue, vec![extension]).await) {
            Ok(_) => true,
            Err(refused) if refused.is_lease_lost() => false,
            Err(refused) => panic!("ExtendLease: {refused}"),
        };
        let (id, fencing_token) = (lease.id.clone(), lease.fencing_token);
        self.recorder.record(begin_us, What::Extended { id, fencing_token, lease_ms, ok });
    }

    /// Cancels by the lease; a message that an operator has canceled meanwhile answers just that.
    async fn cancel(&self, via: usize, lease: &Lease) {
        let begin_us = self.recorder.now_us();
        let cancellation = Cancellation::by_holder(lease).reason("not wanted");
        match only(self.clients[via].cancel(&self.queue, vec![cancellation]).await) {
            Ok(Transition { state, version }) => {
                self.recorder.record(begin_us, What::Changed { id: lease.id.clone(), state, version });
            }
            Err(refused) => assert!(["LEASE_LOST", "WRONG_STATE"].contains(&refused.reason.as_str()), "{refused}"),
        }
    }

    async fn end(&self, lease: &Lease, call: impl Future<Output = Items<Transition>>) {
        let begin_us = self.recorder.now_us();
        let end = match only(call.await) {
            Ok(Transition { state, version }) => End::To(state, version),
            Err(refused) if refused.is_lease_lost() => End::Lost,
            Err(refused) => panic!("the end of a lease: {refused}"),
        };
        self.recorder.record(begin_us, What::Ended { id: lease.id.clone(), fencing_token: lease.fencing_token, end });
    }

    /// A worker on a Work stream, one message at a time, leases extended by the client.
    pub(crate) async fn stream(self, via: usize, seed: u64) {
        let mut done = self.phase.clone();
        let shutdown = async move { drop(done.wait_for(|phase| *phase == Phase::Done).await) };
        // A place is free, and its credit given, from the start and from the end of each handler.
        let free_since_us = Arc::new(AtomicU64::new(self.recorder.now_us()));
        let ended_us: Arc<Mutex<HashMap<LeaseRef, u64>>> = Arc::default();
        let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        let (load, ended) = (self.clone(), ended_us.clone());
        let worker = Worker::new(self.clients[via].clone(), &self.queue)
            .name(format!("stream {seed}"))
            .lease_ms(SHORT_LEASE_MS)
            .on_outcome(move |lease, outcome| {
                let Some(begin_us) = ended.lock().unwrap().remove(lease) else { return };
                let end = match outcome {
                    Outcome::Completed(transition) | Outcome::Released(transition) => {
                        End::To(transition.state, transition.version)
                    }
                    Outcome::Lost(Lost::Refused(refused)) if refused.is_lease_lost() => End::Lost,
                    Outcome::Lost(Lost::Revoked) => End::Lost,
                    Outcome::Lost(_) => End::Unknown,
                };
                let LeaseRef { id, fencing_token } = lease.clone();
                load.recorder.record(begin_us, What::Ended { id, fencing_token, end });
            });
        let stats = worker.run_until(shutdown, move |lease: Lease| {
            let (load, free_since_us, ended_us) = (self.clone(), free_since_us.clone(), ended_us.clone());
            let (work_ms, fails) = {
                let mut rng = rng.lock().unwrap();
                // Now and then longer than the lease.
                (if rng.random_bool(0.05) { 1_500 } else { rng.random_range(0..10) }, rng.random_bool(0.1))
            };
            async move {
                load.leased(free_since_us.load(Ordering::SeqCst), &lease, SHORT_LEASE_MS, true);
                sleep(Duration::from_millis(work_ms)).await;
                let now_us = load.recorder.now_us();
                ended_us.lock().unwrap().insert(lease.lease_ref(), now_us);
                free_since_us.store(now_us, Ordering::SeqCst);
                if fails { Err(Failure::new("it happens").retry_after_ms(10)) } else { Ok(()) }
            }
        });
        stats.await.expect("a worker that is never refused");
    }
}

/// The answer about the only item of a batch.
fn only<T>(items: Items<T>) -> Result<T, Refused> {
    let mut items = items.expect("an answer");
    assert_eq!(items.len(), 1, "one item in, one out");
    items.remove(0)
}
