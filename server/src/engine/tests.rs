//! The engine over the oracle, without gRPC and in virtual time: tokio's clock does not advance while any task can run, and
//! jumps to the next timer when none can.

use super::*;
use crate::config::{CreateOnEnqueue, QueueTemplates, ServerConfig, TenantConfigs};
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::queue_metrics::Board;
use crate::sweeper::Sweeper;
use crate::tenants::Tenants;
use crate::testing::{TestStore, shard_of};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Backoff, Filter, MessageId, QueueConfig};
use tokio_util::sync::CancellationToken;

pub(crate) struct Rig {
    pub(crate) store: Arc<TestStore>,
    pub(crate) engine: Arc<Engine<TestStore>>,
}

impl Rig {
    pub(super) fn new(store: &Arc<TestStore>) -> Self {
        Rig::creating(store, CreateOnEnqueue::default(), QueueTemplates::default())
    }

    pub(super) fn creating(
        store: &Arc<TestStore>,
        create_on_enqueue: CreateOnEnqueue,
        templates: QueueTemplates,
    ) -> Self {
        Rig::with(store, create_on_enqueue, templates, TenantConfigs::default())
    }

    pub(super) fn with(
        store: &Arc<TestStore>,
        create_on_enqueue: CreateOnEnqueue,
        templates: QueueTemplates,
        tenants: TenantConfigs,
    ) -> Self {
        let metrics = Arc::new(Metrics::new());
        let context = Context {
            store: store.clone(),
            templates,
            create_on_enqueue,
            sweeper: Arc::default(),
            health: StoreHealth::of(1),
            rooms: Rooms::new(ServerConfig::default().waiting(), &metrics),
            metrics,
            queues: Board::new(Some(100), 1),
            wait_limits: WaitLimits {
                subscriptions_max: 10_000,
                dequeues_max: 10_000,
                waiters_max: 10_000,
                filters_max: 256,
            },
            enqueue_stream_calls_max: 1_000,
            fair_queue: FairQueue::default(),
            tenants: Tenants::new(&tenants, store),
            stopping: CancellationToken::new(),
        };
        Rig { store: store.clone(), engine: Engine::new(context) }
    }

    pub(crate) async fn with_queues(names: &[&str]) -> Self {
        let store = TestStore::new();
        for name in names {
            store.oracle.create_queue(&queue(name), QueueConfig::default()).await.unwrap();
        }
        Rig::new(&store)
    }

    fn sweep(&self, owner: &str) -> CancellationToken {
        let context = &self.engine.context;
        let sweeper = Sweeper {
            store: self.store.clone(),
            schedule: context.sweeper.clone(),
            lanes: self.engine.lanes.clone(),
            metrics: context.metrics.clone(),
            queues: context.queues.clone(),
            health: context.health.clone(),
            owner: owner.to_owned(),
            leader_lease_ms: 5_000,
        };
        let stop = CancellationToken::new();
        tokio::spawn(sweeper.run(stop.clone()));
        stop
    }

    /// A Dequeue that waits so long.
    pub(super) fn wait(&self, name: &str, wait: Duration) -> tokio::task::JoinHandle<Result<Vec<Lease>, Refusal>> {
        let (engine, queue) = (self.engine.clone(), queue(name));
        tokio::spawn(async move { engine.dequeue(&queue, request(1), 0, Instant::now() + wait).await })
    }

    pub(crate) async fn enqueue(&self, name: &str, ids: &[&str]) {
        let messages = ids.iter().map(|id| NewMessage::new(id_of(id), 0)).collect();
        self.engine.enqueue(&queue(name), messages, 0, true).await.unwrap();
    }

    /// Lets both clocks run.
    async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.store.clock_ms.fetch_add(STEP.as_millis() as u64, Ordering::SeqCst);
            tokio::time::sleep(STEP).await;
        }
    }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::parse("queue", name).unwrap()
}

pub(super) fn id_of(id: &str) -> MessageId {
    MessageId::parse("id", id).unwrap()
}

pub(crate) fn request(limit: usize) -> DequeueRequest {
    let (worker, filters, request_id) = ("w".to_owned(), Vec::new(), String::new());
    DequeueRequest { worker, limit, lease_ms: None, filters, request_id }
}

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn q18_a_thousand_idle_waiters_on_a_hundred_queues_cost_less_than_ten_calls_a_second() {
    let names: Vec<String> = (0..100).map(|n| format!("q{n}")).collect();
    let rig = Rig::with_queues(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let stop = rig.sweep("a");
    let waiters: Vec<_> = (0..1_000).map(|n| rig.wait(&names[n % 100], HOUR)).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = rig.store.all_calls();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let per_second = (rig.store.all_calls() - before) as f64 / 600.0;
    assert!(per_second < 10.0, "{per_second} calls a second");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn q18_the_end_of_a_wait_and_a_due_window_come_in_time() {
    let rig = Rig::with_queues(&["q"]).await;
    let begun = Instant::now();
    let (short, long) = (rig.wait("q", Duration::from_millis(300)), rig.wait("q", HOUR));
    assert_eq!(short.await.unwrap(), Ok(vec![]));
    assert_eq!(begun.elapsed().as_millis(), 300);
    let later = NewMessage { invisibility_ms: Some(2_000), ..NewMessage::new(id_of("a"), 0) };
    rig.engine.enqueue(&queue("q"), vec![later], 0, true).await.unwrap();
    let due = Instant::now() + Duration::from_millis(2_000);
    rig.pass(Duration::from_millis(2_100)).await;
    assert_eq!(long.await.unwrap().unwrap()[0].id, id_of("a"));
    assert!(Instant::now() >= due);
    assert!(rig.store.calls("dequeue") < 10, "the window is waited for, not polled for");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_retried_less_and_less_and_the_wait_ends_with_the_refusal() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.store.away.store(true, Ordering::SeqCst);
    let waiters: Vec<_> = (0..10).map(|_| rig.wait("q", Duration::from_secs(60))).collect();
    for waiter in waiters {
        assert!(matches!(waiter.await.unwrap(), Err(Refusal::Unavailable { .. })), "not an empty answer");
    }
    let calls = rig.store.calls("dequeue");
    assert!((30..150).contains(&calls), "{calls} calls in a minute");
    let back = rig.wait("q", HOUR);
    tokio::time::sleep(Duration::from_secs(30)).await;
    rig.store.away.store(false, Ordering::SeqCst);
    rig.store.oracle.enqueue(&shard_of("q"), vec![NewMessage::new(id_of("a"), 0)]).await.unwrap();
    let begun = Instant::now();
    assert_eq!(back.await.unwrap().unwrap().len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "found by the retry, without a notification");
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_ends_and_a_new_one_takes_over() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a"]).await;
    assert_eq!(rig.engine.tasks.len(), 1);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(rig.engine.tasks.len(), 0);
    let waiter = rig.wait("q", HOUR);
    assert_eq!(waiter.await.unwrap().unwrap().len(), 1);
    let waiter = rig.wait("q", HOUR);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.engine.tasks.len(), 1, "a lane with a waiter stays");
    rig.engine.context.stopping.cancel();
    assert_eq!(waiter.await.unwrap(), Ok(vec![]));
    rig.engine.drained().await;
}

#[tokio::test(start_paused = true)]
async fn q5_the_sweeper_moves_what_is_due_and_collects_without_a_call() {
    let rig = Rig::with_queues(&[]).await;
    let retry_backoff = Backoff::default();
    let config =
        QueueConfig { terminal_retention_ms: 60_000, lease_ms: 5_000, retry_backoff, ..QueueConfig::default() };
    rig.store.oracle.create_queue(&queue("q"), config).await.unwrap();
    let stop = rig.sweep("a");
    let later = NewMessage { invisibility_ms: Some(3_000), ..NewMessage::new(id_of("a"), 0) };
    rig.engine.enqueue(&queue("q"), vec![later, NewMessage::new(id_of("b"), 0)], 0, true).await.unwrap();
    let lease = rig.wait("q", HOUR).await.unwrap().unwrap().remove(0);
    let lease = LeaseRef::from(&lease);
    let depth = async || rig.store.oracle.depth(&shard_of("q"), None).await.unwrap();
    rig.pass(Duration::from_millis(3_500)).await;
    assert_eq!((depth().await.pending, depth().await.running), (1, 1), "the window has elapsed");
    rig.pass(Duration::from_millis(2_000)).await;
    assert_eq!((depth().await.pending, depth().await.running), (2, 0), "the lease has run out");
    let lost = rig.engine.complete(&queue("q"), vec![lease.into()], 0).await.unwrap();
    assert!(matches!(lost[0], Err(Refusal::LeaseLost { .. })));
    let cancel = |id| Cancellation { id: id_of(id), fencing_token: 0, force: false, reason: String::new() };
    let canceled = rig.engine.cancel(&queue("q"), vec![cancel("a"), cancel("b")], 0).await.unwrap();
    assert!(canceled.iter().all(Result::is_ok));
    rig.pass(Duration::from_millis(59_000)).await;
    assert_eq!(depth().await.canceled, 2);
    rig.pass(Duration::from_millis(2_000)).await;
    assert_eq!(depth().await, tallystone_model::store::Depth::default(), "collected");
    let sweeps = rig.store.calls("sweep");
    assert!(sweeps < 20, "{sweeps} sweeps in a minute");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn q5_one_server_sweeps_and_another_takes_over() {
    let store = TestStore::new();
    store.one_leader.store(true, Ordering::SeqCst);
    let (first, second) = (Rig::new(&store), Rig::new(&store));
    store.oracle.create_queue(&queue("q"), QueueConfig::default()).await.unwrap();
    let (stop_first, stop_second) = (first.sweep("first"), second.sweep("second"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.leader(), "first");
    stop_first.cancel();
    let sweeps = store.calls("sweep");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(store.leader(), "second");
    assert!(store.calls("sweep") > sweeps, "its lease begins with a walk");
    stop_second.cancel();
}

#[tokio::test(start_paused = true)]
async fn q8_waiters_share_what_comes_fairly_and_never_more_than_a_call_may_carry() {
    let rig = Rig::with_queues(&["q"]).await;
    let mut waiters = Vec::new();
    for n in 0..6 {
        let (engine, request) = (rig.engine.clone(), DequeueRequest { worker: format!("w{n}"), ..request(400) });
        waiters.push(tokio::spawn(async move { engine.dequeue(&queue("q"), request, 0, Instant::now() + HOUR).await }));
        tokio::task::yield_now().await;
    }
    rig.store.called("dequeue", 1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let ids: Vec<String> = (0..1_000).map(|n| format!("{n:04}")).collect();
    rig.enqueue("q", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (n, waiter) in waiters.into_iter().take(3).enumerate() {
        let leases = waiter.await.unwrap().unwrap();
        assert_eq!(leases.len(), [400, 400, 200][n], "in order of arrival");
        assert_eq!(leases[0].id, id_of(&format!("{:04}", n * 400)));
    }
}

#[tokio::test(start_paused = true)]
async fn q8_a_filter_that_nothing_passes_does_not_cause_repeated_calls() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a", "b", "c"]).await;
    let filters = vec![Filter::parse([("k".to_owned(), "v".to_owned())].into()).unwrap()];
    let engine = rig.engine.clone();
    let request = DequeueRequest { filters, ..request(1) };
    let waiter = tokio::spawn(async move { engine.dequeue(&queue("q"), request, 0, Instant::now() + HOUR).await });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!waiter.is_finished());
    assert!(rig.store.calls("dequeue") <= 2, "though three messages are runnable");
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_being_built_is_waited_for() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a"]).await;
    rig.store.building.store(3, Ordering::SeqCst);
    let building = rig.engine.dequeue(&queue("q"), request(1), 0, Instant::now()).await;
    assert!(matches!(building, Err(Refusal::IndexBuilding { .. })), "a call that does not wait gets the refusal");
    let leases = rig.wait("q", HOUR).await.unwrap().unwrap();
    assert_eq!(leases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn q18_a_lane_ends_with_its_last_subscription_while_the_server_stops() {
    let rig = Rig::with_queues(&["q"]).await;
    for pauses in 0..20 {
        let rig = Rig::new(&rig.store);
        let events = WorkEvents::new();
        let mut session = rig.engine.work(&queue("q"), request(0), false, events.sender(0)).unwrap();
        session.submit(Submission { credits: 1, ..Submission::default() });
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.engine.context.stopping.cancel();
        // The subscription ends at each moment of the lane's end.
        for _ in 0..pauses {
            tokio::task::yield_now().await;
        }
        drop(session);
        let drained = tokio::time::timeout(Duration::from_secs(1), rig.engine.drained()).await;
        assert!(drained.is_ok(), "after {pauses} pauses");
    }
}

#[tokio::test(start_paused = true)]
async fn o1_a_call_of_an_absent_queue_leaves_no_series() {
    let rig = Rig::with_queues(&["there"]).await;
    let lost = LeaseRef { id: id_of("m"), fencing_token: 1 };
    for name in ["absent", "there"] {
        let _refused = rig.engine.complete(&queue(name), vec![lost.clone().into()], 0).await;
    }
    // The lane of an absent queue ends at once.
    rig.pass(Duration::from_secs(1)).await;
    let mut page = String::new();
    crate::queue_metrics::write(&rig.engine.context.queues, &mut page);
    let refused: Vec<&str> = page.lines().filter(|line| line.starts_with("tallystone_queue_refused_total")).collect();
    assert_eq!(refused, ["tallystone_queue_refused_total{queue=\"there\",reason=\"MESSAGE_NOT_FOUND\"} 1"]);
}
