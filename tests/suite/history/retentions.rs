//! The embedded store with another retention for some queues.

use tallystone_indexer::{Embedded, EmbeddedOptions, HistoryStore, SearchQuery};
use tallystone_model::QueueName;
use tallystone_tests::history::ONLY;
use tallystone_tests::{BEGIN_MS, HeldStore, HistoryFixture, Life, events_of};

const DAY_MS: u64 = 86_400_000;

#[tokio::test]
async fn q21_the_retention_of_the_longest_prefix_applies() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let retentions = vec![("a/".to_owned(), DAY_MS), ("a/b/".to_owned(), 10 * DAY_MS)];
    let path = folder.path().join("history.db");
    let options = EmbeddedOptions { retention_ms: 3 * DAY_MS, retentions, ..EmbeddedOptions::new(path) };
    let store = HeldStore::new(Embedded::open(options).expect("a history"), ());
    let history = HistoryFixture::new(store.into(), "orders");
    let queues = ["orders", "a", "a/x", "a/b/y"].map(|name| QueueName::parse("queue", name).expect("a name"));
    let gone = |queue: &QueueName| Life::new(queue, "m").at(BEGIN_MS).enqueued().leased("w").completed().collected();
    history.record_and_show(&events_of(&queues.each_ref().map(gone))).await;
    let kept = async |days: u64| {
        while history.store().prune(BEGIN_MS + days * DAY_MS + DAY_MS / 2).await.expect("a step") {}
        history.store().advance(ONLY, 1).await.expect("an advance");
        let query = SearchQuery { include_gone: true, limit: 10, ..SearchQuery::default() };
        let found = history.search(&query).await;
        let mut names: Vec<String> = found.into_iter().map(|message| message.queue).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(kept(0).await, "a a/b/y a/x orders");
    assert_eq!(kept(1).await, "a a/b/y orders");
    assert_eq!(kept(3).await, "a/b/y");
    assert_eq!(kept(10).await, "");
}
