//! Late retries, which only the archive can answer (N15): no other call waits for it.

use super::*;
use crate::system::program::SOON;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use std::time::Duration;
use tallystone_counters::CountersConfig;
use tallystone_counters::service::{ChangeRequest, CounterService};
use tokio::time::timeout;

/// As good as for ever.
const HANGS: Duration = Duration::from_secs(86_400);
/// Fewer than the archive answers at once.
const LATE: usize = 3;

/// A namespace with one archived add, served without a queue.
pub(super) struct Archived {
    service: Arc<CounterService>,
    pub(super) namespaces: RedisNamespaces,
    pub(super) name: NamespaceName,
    objects: Arc<ThrottledStore<InMemory>>,
    pub(super) clock_ms: Arc<AtomicU64>,
    /// It ends with its last user.
    _redis: Arc<TestRedis>,
}

impl Archived {
    /// Its clock is a minute after noon.
    pub(super) async fn with_one_add() -> Archived {
        let redis = TestRedis::shared().await;
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let objects = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
        let config = ArchiveConfig { keep_ms: 0, ..ArchiveConfig::default() };
        let archive = EventArchive::new(Archive::over(objects.clone()), &config);
        let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let namespaces = namespaces.with_archive(Some(archive));
        let service = CounterService::new(namespaces.clone(), None, CountersConfig::default().waiting());
        let name = NamespaceName::parse(format!("late-{:08x}", rand::random::<u32>())).expect("a namespace");
        let namespace = service.put_namespace(&name, Ok).await.expect("a namespace");
        assert!(namespace.config.archived);
        let archived = Archived { service, namespaces: namespaces.clone(), name, objects, clock_ms, _redis: redis };
        assert_eq!(archived.add("old", NOON_MS).await, counted(NOON_MS));
        archived.clock_ms.fetch_add(60_000, Ordering::SeqCst);
        let store = namespaces.open(&namespace).await.expect("its stores");
        let lease = LeaseOrder { leased_at_ms: NOON_MS + 60_000, fencing_token: 1 };
        let rolled_up = roll_up(&store, &store, &[Job { counter: counter("c"), lease }]).await.remove(0);
        assert!(rolled_up.is_ok(), "{rolled_up:?}");
        assert_eq!(store.archive_pass().await.expect("a pass").events, 1);
        archived
    }

    /// The answer to an add of 1 to "c".
    pub(super) async fn add(&self, text: &str, time_ms: u64) -> Result<Appended, Refusal> {
        let event = Some((token(text), time_ms));
        let (change, bounds) = (Change::Add(1), Bounds::default());
        let labels = Labels::default();
        let request = ChangeRequest { counter: counter("c"), change, event, bounds, labels };
        self.service.append(&self.name, vec![request]).await.expect("a namespace").remove(0)
    }
}

#[tokio::test]
async fn n15_a_late_retry_delays_no_other_add() {
    let archived = Arc::new(Archived::with_one_add().await);
    assert_eq!(archived.add("old", NOON_MS).await, duplicate(NOON_MS));
    archived.objects.config_mut(|config| {
        config.wait_get_per_call = HANGS;
        config.wait_list_per_call = HANGS;
        config.wait_list_with_delimiter_per_call = HANGS;
    });
    let now_ms = archived.clock_ms.load(Ordering::SeqCst);
    let mut late = Vec::new();
    for number in 0..20 {
        if number < LATE {
            let archived = archived.clone();
            late.push(tokio::spawn(async move { archived.add("old", NOON_MS).await }));
            tokio::task::yield_now().await;
        }
        let added = timeout(SOON, archived.add(&format!("new {number}"), now_ms)).await;
        assert_eq!(added.expect("it does not wait for the archive"), counted(now_ms));
    }
    assert!(late.iter().all(|retry| !retry.is_finished()), "only the archive can answer them");
    late.iter().for_each(|retry| retry.abort());
    archived.objects.config_mut(|config| *config = ThrottleConfig::default());
    assert_eq!(archived.add("old", NOON_MS).await, duplicate(NOON_MS));
}
