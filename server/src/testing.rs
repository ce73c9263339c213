//! Test support of this crate: a store that counts, delays and refuses calls, and a server over it on loopback.

use crate::attach::attach_queue;
use crate::config::{QueueTemplates, ServerConfig, TenantConfigs};
use crate::queue_metrics::QueueStates;
use crate::store::LeaseAnswers;
use crate::sweeper::{LeaderLease, SweepTimes};
use crate::tenants::KeptMessages;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::explain::Facts;
use tallystone_model::invariants::Violation;
use tallystone_model::message::{Enqueued, Message, NewMessage};
use tallystone_model::oracle::Oracle;
use tallystone_model::store::*;
use tallystone_model::{
    Applied, ChangeRequest, ChangedPage, Filter, Layout, MessageId, QueueConfig, QueueName, QueuePatch, Refusal, Shard,
    State, Store,
};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_serving::{Host, ServeError};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// The longest time that a test waits for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// An oracle that counts its calls, and that a test can make refuse or delay them.
pub(crate) struct TestStore {
    pub(crate) oracle: Oracle,
    pub(crate) clock_ms: Arc<AtomicU64>,
    /// The store does not answer.
    pub(crate) away: AtomicBool,
    /// The store does not answer any more once it has answered a call of this verb.
    pub(crate) away_after: Mutex<Option<&'static str>>,
    /// Calls wait while it is closed (false): before they act, and before they answer.
    pub(crate) gate: watch::Sender<bool>,
    /// Calls wait before they answer only.
    pub(crate) exit: watch::Sender<bool>,
    /// Answers take up to two milliseconds, each its own time, as over a network.
    pub(crate) slow: AtomicBool,
    /// Dequeues and Redrives of these shards are refused, as a set of bits.
    pub(crate) away_shards: AtomicU64,
    /// These shards act, and do not answer, as a set of bits.
    pub(crate) hung_shards: watch::Sender<u64>,
    /// The replies of this many dequeues are lost.
    pub(crate) lose: AtomicU64,
    /// The same of those that have leases.
    pub(crate) lose_leases: AtomicU64,
    /// This many dequeues are refused because an index is being built.
    pub(crate) building: AtomicU64,
    /// Only one owner at a time gets the leader lease.
    pub(crate) one_leader: AtomicBool,
    leader: Mutex<Option<(String, tokio::time::Instant)>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    calls_changed: watch::Sender<u64>,
}

impl TestStore {
    pub(crate) fn new() -> Arc<Self> {
        let clock_ms = Arc::new(AtomicU64::new(1_000_000));
        Arc::new(TestStore {
            oracle: Oracle::new(clock_ms.clone()),
            clock_ms,
            away: AtomicBool::new(false),
            away_after: Mutex::default(),
            gate: watch::Sender::new(true),
            exit: watch::Sender::new(true),
            slow: AtomicBool::new(false),
            away_shards: AtomicU64::new(0),
            hung_shards: watch::Sender::new(0),
            lose: AtomicU64::new(0),
            lose_leases: AtomicU64::new(0),
            building: AtomicU64::new(0),
            one_leader: AtomicBool::new(false),
            leader: Mutex::default(),
            calls: Mutex::default(),
            calls_changed: watch::Sender::new(0),
        })
    }

    /// Calls of a verb that have begun.
    pub(crate) fn calls(&self, verb: &str) -> u64 {
        self.calls.lock().unwrap().get(verb).copied().unwrap_or(0)
    }

    /// Calls of all verbs.
    pub(crate) fn all_calls(&self) -> u64 {
        self.calls.lock().unwrap().values().sum()
    }

    /// The owner of the leader lease.
    pub(crate) fn leader(&self) -> String {
        self.leader.lock().unwrap().as_ref().map(|(owner, _)| owner.clone()).unwrap_or_default()
    }

    /// Waits until this number of calls of a verb has begun.
    pub(crate) async fn called(&self, verb: &str, count: u64) {
        let mut changed = self.calls_changed.subscribe();
        let reached = changed.wait_for(|_| self.calls(verb) >= count);
        tokio::time::timeout(SOON, reached).await.expect("called in time").unwrap();
    }

    async fn call<T>(&self, verb: &'static str, act: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        *self.calls.lock().unwrap().entry(verb).or_default() += 1;
        self.calls_changed.send_modify(|count| *count += 1);
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
        if self.away.load(Ordering::SeqCst) {
            return Err(Refusal::Unavailable { applied: Applied::No, why: "switched off".to_owned() });
        }
        let answer = act.await;
        if *self.away_after.lock().unwrap() == Some(verb) {
            self.away.store(true, Ordering::SeqCst);
        }
        if self.slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_micros(rand::random_range(0..2_000))).await;
        }
        let _ = self.exit.subscribe().wait_for(|open| *open).await;
        if verb == "dequeue" && take_one(&self.lose) {
            return Err(lost());
        }
        answer
    }
}

impl TestStore {
    /// Waits until the shard does not hang.
    async fn answers(&self, shard: &Shard) {
        let _ = self.hung_shards.subscribe().wait_for(|hung| hung & (1 << shard.number) == 0).await;
    }
}

fn lost() -> Refusal {
    Refusal::Unavailable { applied: Applied::Unknown, why: "the reply was lost".to_owned() }
}

/// Counts down by one; `false`: it was 0.
fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl SweepTimes for TestStore {}

impl QueueStates for TestStore {}

impl KeptMessages for TestStore {}

impl LeaderLease for TestStore {
    async fn acquire_leader_lease(&self, owner: &str, lease_ms: u64) -> LeaseAnswers {
        let take = async {
            let now = tokio::time::Instant::now();
            let mut leader = self.leader.lock().unwrap();
            let theirs = leader.as_ref().is_some_and(|(holder, until)| holder != owner && *until > now);
            if theirs && self.one_leader.load(Ordering::SeqCst) {
                return Ok(false);
            }
            *leader = Some((owner.to_owned(), now + Duration::from_millis(lease_ms)));
            Ok(true)
        };
        LeaseAnswers::of_whole(self.call("acquire_leader_lease", take).await)
    }
}

/// `whole`: verbs on whole queues. `shard`: verbs on one shard, after the shard.
macro_rules! through {
    (
        whole { $($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }
        shard { $($shard_verb:ident($($shard_name:ident: $shard_type:ty),*) -> $shard_answer:ty;)* }
    ) => {
        impl Store for TestStore {
            $(async fn $verb(&self, $($name: $type),*) -> $answer {
                self.call(stringify!($verb), self.oracle.$verb($($name),*)).await
            })*

            $(async fn $shard_verb(&self, shard: &Shard, $($shard_name: $shard_type),*) -> $shard_answer {
                let answer = self.call(stringify!($shard_verb), self.oracle.$shard_verb(shard, $($shard_name),*)).await;
                self.answers(shard).await;
                answer
            })*

            async fn dequeue(
                &self,
                shard: &Shard,
                requests: &[DequeueRequest],
                wait: bool,
                ticket: Option<Ticket>,
            ) -> Result<Dequeued, Refusal> {
                if self.away_shards.load(Ordering::SeqCst) & (1 << shard.number) != 0 {
                    return Err(Refusal::Unavailable { applied: Applied::No, why: "a shard is unavailable".to_owned() });
                }
                if take_one(&self.building) {
                    // Nothing new without the index; what an earlier try gave needs none.
                    let old = requests.iter().map(|request| DequeueRequest { limit: 0, ..request.clone() });
                    let old: Vec<DequeueRequest> = old.collect();
                    let building = async {
                        let mut answer = self.oracle.dequeue(shard, &old, wait, ticket).await?;
                        for leases in answer.leases.iter_mut().filter(|leases| **leases == Ok(Vec::new())) {
                            *leases = Err(Refusal::IndexBuilding { keys: "k".to_owned() });
                        }
                        Ok(answer)
                    };
                    return self.call("dequeue", building).await;
                }
                let answer = self.call("dequeue", self.oracle.dequeue(shard, requests, wait, ticket)).await;
                self.answers(shard).await;
                let has_leases = |answer: &Dequeued| answer.leases.iter().flatten().any(|leases| !leases.is_empty());
                match answer.as_ref().is_ok_and(has_leases) && take_one(&self.lose_leases) {
                    true => Err(lost()),
                    false => answer,
                }
            }

            async fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Transition> {
                if self.away_shards.load(Ordering::SeqCst) & (1 << shard.number) != 0 {
                    return Err(Refusal::Unavailable { applied: Applied::No, why: "a shard is unavailable".to_owned() });
                }
                self.call("redrive", self.oracle.redrive(shard, ids)).await
            }

            /// A part of the next call, which counts.
            async fn layout(&self, first: &Shard) -> Result<Layout, Refusal> {
                Ok(self.oracle.layout(first).await.unwrap_or_else(|_| Layout::plain()))
            }

            fn on_ready(&self, notify: Box<dyn Fn(&Shard) + Send + Sync>) {
                self.oracle.on_ready(notify);
            }

            fn on_revoked(&self, notify: NotifyRevoked) {
                self.oracle.on_revoked(notify);
            }

            fn on_light_flow(&self, notify: NotifyLightFlow) {
                self.oracle.on_light_flow(notify);
            }
        }
    };
}

through! {
    whole {
        create_queue(name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal>;
        update_queue(name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal>;
        get_queue(name: &QueueName) -> Result<Queue, Refusal>;
        list_queues(prefix: &str, cursor: &str, limit: usize) -> Result<Page<Queue>, Refusal>;
        delete_queue(name: &QueueName) -> Result<(), Refusal>;
        was_exclusive(name: &QueueName) -> Result<bool, Refusal>;
    }
    shard {
        holds(ids: &[MessageId]) -> Result<Vec<bool>, Refusal>;
        purge(include_running: bool, cursor: &str) -> Result<Purged, Refusal>;
        enqueue(messages: Vec<NewMessage>) -> Items<Enqueued>;
        complete(completions: Vec<Completion>) -> Items<Transition>;
        extend_lease(extensions: Vec<Extension>) -> Items<Extended>;
        release(releases: Vec<Release>) -> Items<Transition>;
        cancel(cancellations: Vec<Cancellation>) -> Items<Transition>;
        update_message(id: &MessageId, patch: MessagePatch) -> Result<Transition, Refusal>;
        change_messages(request: &ChangeRequest, cursor: &str, limit: usize) -> Result<ChangedPage, Refusal>;
        get_messages(ids: Vec<MessageId>) -> Items<Message>;
        list_messages(state: State, cursor: &str, limit: usize) -> Result<Page<Message>, Refusal>;
        explain(id: &MessageId) -> Result<Facts, Refusal>;
        depth(filter: Option<&Filter>) -> Result<Depth, Refusal>;
        ages() -> Result<Ages, Refusal>;
        sweep() -> Result<Swept, Refusal>;
        check(cursor: &str) -> Result<(u64, Page<Violation>), Refusal>;
        notify_light_flow(flow: &str) -> Result<(), Refusal>;
    }
}

/// A server on loopback.
pub(crate) struct TestServer {
    pub(crate) store: Arc<TestStore>,
    pub(crate) queue: QueueClient<Channel>,
    pub(crate) admin: QueueAdminClient<Channel>,
    pub(crate) channel: Channel,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(Host::new(), TestStore::new(), QueueTemplates::default()).await
    }

    pub(crate) async fn start_with(host: Host, store: Arc<TestStore>, templates: QueueTemplates) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let host =
            attach_queue(host, store.clone(), &ServerConfig::default(), templates, &TenantConfigs::default()).unwrap();
        let served = tokio::spawn(host.serve(listener, shutdown));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        TestServer {
            store,
            queue: QueueClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            admin: QueueAdminClient::new(channel.clone()),
            channel,
            address,
            stop: Some(stop),
            served,
        }
    }

    /// Starts to stop the server; [`TestServer::stopped`] waits for the end.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(self) -> Result<(), ServeError> {
        let served = self.served;
        drop((self.queue, self.admin, self.channel));
        tokio::time::timeout(SOON, served).await.expect("stops in time").unwrap()
    }

    pub(crate) async fn create(&mut self, name: &str, config: pb::QueueConfig) {
        let request = pb::CreateQueueRequest { name: name.to_owned(), config: Some(config) };
        self.admin.create_queue(request).await.unwrap();
    }

    pub(crate) async fn enqueue(&mut self, queue: &str, ids: &[&str]) -> Vec<pb::EnqueueResult> {
        let messages = ids.iter().map(|id| message(id)).collect();
        let request = pb::EnqueueRequest { queue: queue.to_owned(), messages };
        self.queue.enqueue(request).await.unwrap().into_inner().results
    }

    pub(crate) async fn depth(&mut self, queue: &str) -> pb::StateCounts {
        let request = pb::DepthRequest { queue: queue.to_owned(), filter: None };
        self.admin.depth(request).await.unwrap().into_inner().counts.unwrap()
    }

    /// Waits until the queue's depth fulfils a condition. It polls, because the store does not notify of such changes.
    pub(crate) async fn until_depth(&mut self, queue: &str, expected: impl Fn(&pb::StateCounts) -> bool) {
        let until = async {
            while !expected(&self.depth(queue).await) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, until).await.expect("in time");
    }
}

pub(crate) fn shard_of(queue: &str) -> Shard {
    Shard::first(&QueueName::parse("queue", queue).unwrap())
}

pub(crate) fn message(id: &str) -> pb::NewMessage {
    pb::NewMessage { id: id.to_owned(), ..pb::NewMessage::default() }
}

pub(crate) fn dequeue(queue: &str, limit: i32, wait_ms: i64) -> pb::DequeueRequest {
    let (queue, worker) = (queue.to_owned(), "w".to_owned());
    pb::DequeueRequest { queue, worker, limit, wait_ms, ..pb::DequeueRequest::default() }
}

pub(crate) fn filter(key: &str, value: &str) -> pb::Filter {
    pb::Filter { equals: [(key.to_owned(), value.to_owned())].into() }
}
