//! A history store under test, and the fixture through which one test writes and queries it.

use crate::events::Life;
use crate::service::TestElasticsearch;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use tallystone_indexer::{
    DepthQuery, Elastic, ElasticOptions, Embedded, EmbeddedOptions, GroupBy, Grouping, HistoryStore, Queues,
    SearchPosition, SearchQuery, Source, StatsQuery, Trace, TraceQuery,
};
use tallystone_model::{QueueName, Recorded};
use tallystone_proto::history::v1::{Activity, IndexedMessage};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The only source of most tests.
pub const ONLY: Source = Source { number: 0, of: 1 };

/// A [`HistoryStore`] that the conformance suite runs on.
pub trait HistoryUnderTest: HistoryStore + Sized {
    /// The store that all tests of this process share. Each call returns another handle if the store allows several.
    fn shared() -> impl Future<Output = Arc<HeldStore<Self>>>;

    /// A store that only the caller has, with this retention.
    fn fresh(retention_ms: u64) -> impl Future<Output = Arc<HeldStore<Self>>>;
}

/// A store, and the resources that must live as long.
pub struct HeldStore<S> {
    /// The store.
    pub store: S,
    // Dropped after the store.
    _resources: Box<dyn Any + Send + Sync>,
}

impl<S> HeldStore<S> {
    /// Holds both.
    pub fn new(store: S, resources: impl Any + Send + Sync) -> Self {
        HeldStore { store, _resources: Box::new(resources) }
    }
}

static SHARED: Mutex<Weak<HeldStore<Embedded>>> = Mutex::const_new(Weak::new());

impl HistoryUnderTest for Embedded {
    async fn shared() -> Arc<HeldStore<Self>> {
        let mut shared = SHARED.lock().await;
        if let Some(held) = shared.upgrade() {
            return held;
        }
        let held = Embedded::fresh(u64::MAX).await;
        *shared = Arc::downgrade(&held);
        held
    }

    async fn fresh(retention_ms: u64) -> Arc<HeldStore<Self>> {
        let folder = TempDir::new().expect("a temporary folder");
        let options = EmbeddedOptions { retention_ms, ..EmbeddedOptions::new(folder.path().join("history.db")) };
        Arc::new(HeldStore::new(Embedded::open(options).expect("a new history"), folder))
    }
}

/// The prefix of the indices that all tests of this process share.
static PREFIX: LazyLock<String> = LazyLock::new(|| prefix("shared"));

/// A prefix that no other test has.
fn prefix(name: &str) -> String {
    format!("{name}-{:016x}", rand::random::<u64>())
}

impl HistoryUnderTest for Elastic {
    async fn shared() -> Arc<HeldStore<Self>> {
        elastic(PREFIX.clone(), u64::MAX).await
    }

    async fn fresh(retention_ms: u64) -> Arc<HeldStore<Self>> {
        elastic(prefix("fresh"), retention_ms).await
    }
}

async fn elastic(prefix: String, retention_ms: u64) -> Arc<HeldStore<Elastic>> {
    let server = TestElasticsearch::shared().await;
    let options = ElasticOptions { prefix, retention_ms, replicas: 0, ..ElasticOptions::new(server.address()) };
    Arc::new(HeldStore::new(Elastic::new(options).expect("good options"), server))
}

/// One test's access to a store: it writes to and queries the test's own queues.
pub struct HistoryFixture<S> {
    /// The store.
    pub held: Arc<HeldStore<S>>,
    /// The queue of most tests.
    pub queue: QueueName,
    test: String,
    made: AtomicUsize,
}

impl<S: HistoryUnderTest> HistoryFixture<S> {
    /// A fixture on a store; `test` separates its queues from those of other tests.
    pub fn new(held: Arc<HeldStore<S>>, test: &str) -> Self {
        let queue = QueueName::parse("queue", test).expect("a valid queue name");
        HistoryFixture { held, queue, test: test.to_owned(), made: AtomicUsize::new(0) }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.held.store
    }

    /// A queue that has not been used yet.
    pub fn another_queue(&self) -> QueueName {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        QueueName::parse("queue", &format!("{}/{number:03}", self.test)).expect("a valid queue name")
    }

    /// A new message of the queue.
    pub fn life(&self, id: &str) -> Life {
        Life::new(&self.queue, id)
    }

    /// Records events and makes them visible.
    pub async fn record_and_show(&self, events: &[Recorded]) {
        self.record(events).await;
        self.show().await;
    }

    /// Records events.
    pub async fn record(&self, events: &[Recorded]) {
        assert_eq!(self.store().record(events).await.expect("a record"), [], "nothing is rejected");
    }

    /// Makes visible what was recorded.
    pub async fn show(&self) {
        self.store().advance(ONLY, 1).await.expect("an advance");
    }

    /// Every transition under an id, and the message.
    pub async fn trace(&self, id: &str) -> Trace {
        self.trace_as(id, |_| {}).await
    }

    /// A trace by a changed query.
    pub async fn trace_as(&self, id: &str, change: impl FnOnce(&mut TraceQuery)) -> Trace {
        let (queue, id) = (self.queue.clone(), crate::build::id(id));
        let mut query = TraceQuery { queue, id, sequence: None, limit: 10_000, after: None };
        change(&mut query);
        self.store().trace(&query).await.expect("a trace")
    }

    /// A search for snapshot in the queue that is not gone, to be narrowed.
    pub fn any(&self) -> SearchQuery {
        SearchQuery { queues: Queues::One(self.queue.clone()), limit: 1_000, ..SearchQuery::default() }
    }

    /// One page of a search.
    pub async fn search(&self, query: &SearchQuery) -> Vec<IndexedMessage> {
        self.store().search(query).await.expect("a search")
    }

    /// The ids of one page.
    pub async fn ids(&self, query: &SearchQuery) -> Vec<String> {
        self.search(query).await.into_iter().map(|message| message.id).collect()
    }

    /// All pages of a search.
    pub async fn pages(&self, query: &SearchQuery) -> Vec<IndexedMessage> {
        let (mut query, mut messages) = (query.clone(), Vec::new());
        loop {
            let page = self.search(&query).await;
            assert!(page.len() <= query.limit, "{} messages on a page of {}", page.len(), query.limit);
            let is_after = |message: &IndexedMessage| Some(SearchPosition::of(message)) != query.after;
            assert!(page.iter().all(is_after), "a page begins after the last one: {:?}", query.after);
            let is_last = page.len() < query.limit;
            messages.extend(page);
            if is_last {
                return messages;
            }
            query.after = messages.last().map(SearchPosition::of);
        }
    }

    /// The statistics of [from, to), Unix ms.
    pub async fn stats(&self, from_ms: u64, to_ms: u64, interval_ms: Option<u64>) -> Vec<Activity> {
        let query = StatsQuery { queue: self.queue.clone(), from_ms, to_ms, interval_ms };
        self.store().stats(&query).await.expect("statistics")
    }

    /// Messages by state.
    pub async fn depth(&self, pairs: &[(&str, &str)]) -> [u64; 6] {
        let metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let query = DepthQuery { metadata, ..DepthQuery::of(Queues::One(self.queue.clone())) };
        self.depth_of(&query).await
    }

    /// Messages by state.
    pub async fn depth_of(&self, query: &DepthQuery) -> [u64; 6] {
        self.store().depth(query).await.expect("a depth")
    }

    /// All groups, page by page.
    pub async fn depth_by(&self, query: &DepthQuery, by: GroupBy, limit: usize) -> Vec<(String, [u64; 6])> {
        let mut grouping = Grouping { by, after: None, limit };
        let mut groups = Vec::new();
        loop {
            let page = self.store().depth_by(query, &grouping).await.expect("groups");
            assert!(page.len() <= limit, "{} groups on a page of {limit}", page.len());
            let is_last = page.len() < limit;
            groups.extend(page);
            if is_last {
                return groups;
            }
            grouping.after = groups.last().map(|(value, _)| value.clone());
        }
    }

    /// Everything that the store returns for the queue and this span, except percentiles, which are approximate.
    pub async fn snapshot(&self, from_ms: u64, to_ms: u64) -> Snapshot {
        let query = SearchQuery { include_gone: true, limit: 7, ..self.any() };
        let messages = self.pages(&query).await;
        let ids: BTreeSet<String> = messages.iter().map(|message| message.id.clone()).collect();
        let mut traces = BTreeMap::new();
        for id in ids {
            traces.insert(id.clone(), self.trace(&id).await);
        }
        let mut stats = self.stats(from_ms, to_ms, Some((to_ms - from_ms).div_ceil(7))).await;
        for state in stats.iter_mut().flat_map(|activity| &mut activity.states) {
            (state.p50_ms, state.p90_ms, state.p99_ms) = (0, 0, 0);
        }
        Snapshot { messages, traces, stats, depth: self.depth(&[]).await }
    }
}

/// The result of [`HistoryFixture::snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Messages, including those that are gone.
    pub messages: Vec<IndexedMessage>,
    /// By id.
    pub traces: BTreeMap<String, Trace>,
    /// The whole span and seven intervals.
    pub stats: Vec<Activity>,
    /// The depth of the queue.
    pub depth: [u64; 6],
}
