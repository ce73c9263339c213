//! A history store under test, and a desk at which one test asks it.

use crate::events::Life;
use crate::service::TestElasticsearch;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use tallystone_indexer::{
    DepthQuery, Elastic, ElasticOptions, Embedded, EmbeddedOptions, HistoryStore, SearchPosition, SearchQuery, Source,
    StatsQuery, Trace, TraceQuery,
};
use tallystone_model::{QueueName, Recorded};
use tallystone_proto::history::v1::{Activity, IndexedMessage};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The one source of most tests.
pub const ONLY: Source = Source { number: 0, of: 1 };

/// A [`HistoryStore`] that tests can get.
pub trait Archive: HistoryStore + Sized {
    /// The one that all tests of this process share: another handle on it each time, where it may have several.
    fn shared() -> impl Future<Output = Arc<Held<Self>>>;

    /// One that nobody else has, with this retention.
    fn fresh(retention_ms: u64) -> impl Future<Output = Arc<Held<Self>>>;
}

/// A store, and what has to live as long.
pub struct Held<S> {
    /// The store.
    pub store: S,
    // Goes after the store.
    _beside: Box<dyn Any + Send + Sync>,
}

impl<S> Held<S> {
    /// Keeps both.
    pub fn new(store: S, beside: impl Any + Send + Sync) -> Self {
        Held { store, _beside: Box::new(beside) }
    }
}

static SHARED: Mutex<Weak<Held<Embedded>>> = Mutex::const_new(Weak::new());

impl Archive for Embedded {
    async fn shared() -> Arc<Held<Self>> {
        let mut shared = SHARED.lock().await;
        if let Some(held) = shared.upgrade() {
            return held;
        }
        let held = Embedded::fresh(u64::MAX).await;
        *shared = Arc::downgrade(&held);
        held
    }

    async fn fresh(retention_ms: u64) -> Arc<Held<Self>> {
        let folder = TempDir::new().expect("a temporary folder");
        let options = EmbeddedOptions { retention_ms, ..EmbeddedOptions::new(folder.path().join("history.db")) };
        Arc::new(Held::new(Embedded::open(options).expect("a new history"), folder))
    }
}

/// The indices that all tests of this process share.
static PREFIX: LazyLock<String> = LazyLock::new(|| prefix("shared"));

/// That nobody else has.
fn prefix(name: &str) -> String {
    format!("{name}-{:016x}", rand::random::<u64>())
}

impl Archive for Elastic {
    async fn shared() -> Arc<Held<Self>> {
        elastic(PREFIX.clone(), u64::MAX).await
    }

    async fn fresh(retention_ms: u64) -> Arc<Held<Self>> {
        elastic(prefix("fresh"), retention_ms).await
    }
}

async fn elastic(prefix: String, retention_ms: u64) -> Arc<Held<Elastic>> {
    let server = TestElasticsearch::shared().await;
    let options = ElasticOptions { prefix, retention_ms, replicas: 0, ..ElasticOptions::new(server.address()) };
    Arc::new(Held::new(Elastic::new(options).expect("good options"), server))
}

/// Where one test records and asks, in queues of its own.
pub struct Desk<S> {
    /// The store.
    pub held: Arc<Held<S>>,
    /// The queue of most tests.
    pub queue: QueueName,
    test: String,
    made: AtomicUsize,
}

impl<S: Archive> Desk<S> {
    /// A desk at a store; `test` keeps its queues apart from those of other tests.
    pub fn new(held: Arc<Held<S>>, test: &str) -> Self {
        let queue = QueueName::parse("queue", test).expect("a valid queue name");
        Desk { held, queue, test: test.to_owned(), made: AtomicUsize::new(0) }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.held.store
    }

    /// A queue that nobody has asked of yet.
    pub fn another_queue(&self) -> QueueName {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        QueueName::parse("queue", &format!("{}/{number:03}", self.test)).expect("a valid queue name")
    }

    /// A message of the queue that is not there yet.
    pub fn life(&self, id: &str) -> Life {
        Life::new(&self.queue, id)
    }

    /// Records events and makes them visible.
    pub async fn tell(&self, events: &[Recorded]) {
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

    /// A trace, asked for in another way.
    pub async fn trace_as(&self, id: &str, ask: impl FnOnce(&mut TraceQuery)) -> Trace {
        let (queue, id) = (self.queue.clone(), crate::build::id(id));
        let mut query = TraceQuery { queue, id, sequence: None, limit: 10_000, after: None };
        ask(&mut query);
        self.store().trace(&query).await.expect("a trace")
    }

    /// A search for everything in the queue that is not gone, to be narrowed.
    pub fn any(&self) -> SearchQuery {
        SearchQuery { queue: Some(self.queue.clone()), limit: 1_000, ..SearchQuery::default() }
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
            let is_behind = |message: &IndexedMessage| Some(SearchPosition::of(message)) != query.after;
            assert!(page.iter().all(is_behind), "a page begins behind the last one: {:?}", query.after);
            let is_last = page.len() < query.limit;
            messages.extend(page);
            if is_last {
                return messages;
            }
            query.after = messages.last().map(SearchPosition::of);
        }
    }

    /// What happened in [from, to).
    pub async fn stats(&self, from_ms: u64, to_ms: u64, interval_ms: Option<u64>) -> Vec<Activity> {
        let query = StatsQuery { queue: self.queue.clone(), from_ms, to_ms, interval_ms };
        self.store().stats(&query).await.expect("statistics")
    }

    /// Messages by state.
    pub async fn depth(&self, pairs: &[(&str, &str)]) -> [u64; 6] {
        let metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let query = DepthQuery { queue: self.queue.clone(), metadata };
        self.store().depth(&query).await.expect("a depth")
    }

    /// All that the store can say of a queue and these moments, percentiles left out: they are within 1%, not exact.
    pub async fn everything(&self, from_ms: u64, to_ms: u64) -> Everything {
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
        Everything { messages, traces, stats, depth: self.depth(&[]).await }
    }
}

/// See [`Desk::everything`].
#[derive(Clone, Debug, PartialEq)]
pub struct Everything {
    /// Messages, gone ones too.
    pub messages: Vec<IndexedMessage>,
    /// By id.
    pub traces: BTreeMap<String, Trace>,
    /// The whole, and seven parts.
    pub stats: Vec<Activity>,
    /// Without metadata.
    pub depth: [u64; 6],
}
