//! The load under which things are killed: producers and workers that never give up, and write down what was
//! acknowledged.

use crate::histories::history::{End, Recorder, What};
pub(crate) use crate::histories::load::Phase;
use crate::system::program::SOON;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::*;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The exclusivity key.
pub(crate) const KEY: &str = "tail";
/// Producers pause while this number of messages waits.
const BACKLOG: usize = 150;
/// Keys that a producer uses at a time. It replaces the oldest ones by new ones.
const KEYS: usize = 30;
/// The messages of a producer after which the oldest key is no longer used.
const MESSAGES_BY_KEY: usize = 5;
/// The longest that a worker holds a message before it reports the result.
const WORK_MS: u64 = 100;
/// The shortest lease that a queue allows: what a dead worker held is soon another's.
pub(crate) const LEASE_MS: u64 = 1_000;

/// The load on one queue.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) queue: String,
    pub(crate) exclusive: bool,
    pub(crate) clients: [Client; 2],
    pub(crate) recorder: Recorder,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Acknowledged completions.
    pub(crate) completed: Arc<watch::Sender<usize>>,
    waiting: Arc<AtomicUsize>,
    /// How many producers have not ended.
    producing: Arc<watch::Sender<usize>>,
    /// How long the queue keeps a terminal message.
    retention: Duration,
    /// How long a producer waits between two Enqueues.
    pause: Duration,
}

/// The configuration of a queue under such a load: attempts are many, and follow each other at once.
pub(crate) fn queue_config(exclusive: bool) -> QueueConfig {
    let config = if exclusive { QueueConfig::exclusive(KEY) } else { QueueConfig::simple() };
    QueueConfig { max_attempts: Some(1_000), retry_backoff: Some(Backoff::NONE), ..config }
}

/// The answer about the only item of a batch.
pub(crate) fn only<T>(items: Items<T>) -> Result<T, Refused> {
    let mut items = items.expect("an answer");
    assert_eq!(items.len(), 1, "one item in, one out");
    items.remove(0)
}

/// A producer that has not ended.
struct Producing(Arc<watch::Sender<usize>>);

impl Producing {
    fn begin(producing: &Arc<watch::Sender<usize>>) -> Self {
        producing.send_modify(|producers| *producers += 1);
        Producing(producing.clone())
    }
}

impl Drop for Producing {
    fn drop(&mut self) {
        self.0.send_modify(|producers| *producers -= 1);
    }
}

impl Load {
    pub(crate) fn new(queue: &str, exclusive: bool, clients: &[Client; 2], phase: &watch::Receiver<Phase>) -> Self {
        Load {
            queue: queue.to_owned(),
            exclusive,
            clients: clients.clone(),
            recorder: Recorder::new(),
            phase: phase.clone(),
            completed: Arc::new(watch::Sender::new(0)),
            waiting: Arc::default(),
            producing: Arc::new(watch::Sender::new(0)),
            retention: Duration::MAX,
            pause: Duration::ZERO,
        }
    }

    /// Says how long the queue keeps a terminal message; without it, for longer than any test runs.
    pub(crate) fn retention(self, retention: Duration) -> Self {
        Load { retention, ..self }
    }

    /// Says how long a producer waits between two Enqueues; without it, producers make what workers can do.
    pub(crate) fn pause(self, pause: Duration) -> Self {
        Load { pause, ..self }
    }

    /// Starts one task of each kind: the results of messages go through another server than the messages.
    pub(crate) fn spawn_spread(&self, via: usize, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.clone().produce(via % 2, rand::random()));
        tasks.spawn(self.clone().work((via + 1) % 2, rand::random()));
        tasks.spawn(self.clone().stream(via % 2, rand::random()));
    }

    /// Enqueues through one server.
    pub(crate) async fn produce(self, via: usize, seed: u64) {
        let _producing = Producing::begin(&self.producing);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut made = 0;
        while *self.phase.borrow() == Phase::Load {
            if self.waiting.load(Ordering::Relaxed) > BACKLOG {
                sleep(Duration::from_millis(2)).await;
                continue;
            }
            let count = rng.random_range(1..=10);
            let messages: Vec<NewMessage> = (made..made + count)
                .map(|number| {
                    NewMessage::new(format!("{via}-{number:05}"), "a message that must not be lost")
                        .priority(rng.random_range(-100..100))
                        .metadata(KEY, format!("N{}", number / MESSAGES_BY_KEY + rng.random_range(0..KEYS)))
                })
                .collect();
            made += count;
            let begin_us = self.recorder.now_us();
            let count = messages.len();
            let results = self.clients[via].enqueue(&self.queue, messages).await;
            for accepted in results.expect("an Enqueue") {
                let (id, origin) = (accepted.expect("a good message").id, String::new());
                self.recorder.record(begin_us, What::Enqueued { id, origin });
            }
            self.waiting.fetch_add(count, Ordering::Relaxed);
            sleep(self.pause).await;
        }
    }

    /// Waits until no message comes any more. The last Enqueue of a producer may be repeated for seconds.
    pub(super) async fn has_produced(&self) {
        let mut producing = self.producing.subscribe();
        let ended = timeout(SOON, producing.wait_for(|producers| *producers == 0)).await;
        assert!(ended.is_ok(), "{}: an Enqueue does not end", self.queue);
    }

    /// Works with unary calls. Now and then the worker dies with what it holds.
    pub(crate) async fn work(self, via: usize, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while *self.phase.borrow() != Phase::Done {
            let limit = rng.random_range(1..=5);
            let begin_us = self.recorder.now_us();
            let request = Dequeue::new(&self.queue).worker(format!("unary {seed}")).lease_ms(LEASE_MS).wait_ms(200);
            let leases = self.clients[via].dequeue(request.limit(limit)).await.expect("a Dequeue");
            for lease in &leases {
                self.leased(begin_us, lease, false);
            }
            for lease in &leases {
                // Work takes its time, else there would be more messages than one cares to judge.
                sleep(Duration::from_millis(rng.random_range(0..WORK_MS))).await;
                match rng.random_range(0..50) {
                    0 => break,
                    1..4 => self.release(via, lease, begin_us).await,
                    _ => self.complete(via, lease, begin_us).await,
                }
            }
        }
    }

    fn leased(&self, begin_us: u64, lease: &Lease, kept: bool) {
        let key = self.exclusive.then(|| lease.metadata[KEY].clone());
        let Lease { id, fencing_token, left_ms, version, .. } = lease.clone();
        let leased = What::Leased { id, key, fencing_token, lease_ms: LEASE_MS, left_ms, version, kept };
        self.recorder.record(begin_us, leased);
    }

    async fn complete(&self, via: usize, lease: &Lease, leased_us: u64) {
        let begin_us = self.recorder.now_us();
        let end = match only(self.clients[via].complete(&self.queue, vec![lease.into()]).await) {
            Ok(Transition { state, version }) => End::To(state, version),
            Err(refused) if refused.is_lease_lost() => End::Lost,
            Err(refused) if self.may_be_collected(leased_us, &refused) => End::Unknown,
            Err(refused) => panic!("Complete: {refused}"),
        };
        self.ended(begin_us, lease.lease_ref(), end);
    }

    async fn release(&self, via: usize, lease: &Lease, leased_us: u64) {
        let begin_us = self.recorder.now_us();
        let release = Release::of(lease).delay_ms(0);
        let end = match only(self.clients[via].release(&self.queue, vec![release]).await) {
            Ok(Transition { state, version }) => End::To(state, version),
            // The call was repeated. If its first attempt released the lease, and another worker has leased the message
            // and ended that lease since, the store no longer knows.
            Err(refused) if refused.is_lease_lost() => End::Unknown,
            Err(refused) if self.may_be_collected(leased_us, &refused) => End::Unknown,
            Err(refused) => panic!("Release: {refused}"),
        };
        self.ended(begin_us, lease.lease_ref(), end);
    }

    /// Whether the message may have ended and been collected since it was leased: the worker waits for a dead server with
    /// all the leases that it holds, and other workers run their messages meanwhile.
    fn may_be_collected(&self, leased_us: u64, refused: &Refused) -> bool {
        let held_for = Duration::from_micros(self.recorder.now_us() - leased_us);
        refused.reason == "MESSAGE_NOT_FOUND" && held_for > self.retention
    }

    fn ended(&self, begin_us: u64, lease: LeaseRef, end: End) {
        let LeaseRef { id, fencing_token } = lease;
        self.recorder.record(begin_us, What::Ended { id, fencing_token, end });
        if matches!(end, End::To(State::Completed, _)) {
            self.completed.send_modify(|count| *count += 1);
            let _ = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Works on a Work stream, one message at a time.
    pub(crate) async fn stream(self, via: usize, seed: u64) {
        let mut done = self.phase.clone();
        let shutdown = async move { drop(done.wait_for(|phase| *phase == Phase::Done).await) };
        // A place is free, and its credit given, from the start and from the end of each handler.
        let free_since_us = Arc::new(AtomicU64::new(self.recorder.now_us()));
        let handled_us: Arc<Mutex<HashMap<LeaseRef, u64>>> = Arc::default();
        let (load, handled) = (self.clone(), handled_us.clone());
        let worker = Worker::new(self.clients[via].clone(), &self.queue)
            .name(format!("stream {seed}"))
            .lease_ms(LEASE_MS)
            .on_outcome(move |lease, outcome| {
                let Some(begin_us) = handled.lock().unwrap().remove(lease) else { return };
                let end = match outcome {
                    Outcome::Completed(transition) | Outcome::Released(transition) => {
                        End::To(transition.state, transition.version)
                    }
                    Outcome::Lost(Lost::Refused(refused)) if refused.is_lease_lost() => End::Lost,
                    Outcome::Lost(Lost::Revoked) => End::Lost,
                    Outcome::Lost(_) => End::Unknown,
                };
                load.ended(begin_us, lease.clone(), end);
            });
        let stats = worker.run_until(shutdown, move |lease: Lease| {
            let (load, free_since_us, handled_us) = (self.clone(), free_since_us.clone(), handled_us.clone());
            async move {
                load.leased(free_since_us.load(Ordering::SeqCst), &lease, true);
                sleep(Duration::from_millis(WORK_MS / 2)).await;
                let now_us = load.recorder.now_us();
                handled_us.lock().unwrap().insert(lease.lease_ref(), now_us);
                free_since_us.store(now_us, Ordering::SeqCst);
                Ok(())
            }
        });
        stats.await.expect("a worker that is never refused");
    }
}
