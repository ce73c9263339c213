//! The first call of the counters after their store was emptied, whichever it is, says so: it counts no 0, and misses no namespace
//! (X7). In a good store nothing more is verified for what was never there.

use super::machines::Redis;
use crate::counting::house::calls;
use futures::future::BoxFuture;
use std::sync::Arc;
use tallystone_counters::namespace::CounterType;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::service::{ChangeRequest, CounterService};
use tallystone_counters::sums::Period;
use tallystone_counters::{
    Appended, Bounds, Change, CounterName, CountersConfig, Labels, NamespaceConfig, NamespaceName, Refusal,
};
use tallystone_link::{Clock, RedisConfig};

const READS: u64 = 500;

/// A call, and what it has answered.
type Call = fn(Arc<CounterService>) -> BoxFuture<'static, Result<String, Refusal>>;

fn name(name: &str) -> NamespaceName {
    NamespaceName::parse(name).expect("a namespace")
}

fn counter(name: &str) -> CounterName {
    CounterName::parse(name).expect("a counter")
}

/// The answer of one add or clear of the counter `c`.
async fn change(counters: &CounterService, change: Change) -> Result<Appended, Refusal> {
    let (bounds, labels) = (Bounds::default(), Labels::default());
    let request = ChangeRequest { counter: counter("c"), change, event: None, bounds, labels };
    counters.append(&name("n"), vec![request]).await?.remove(0)
}

/// Counters on a durable Redis, with an add of a namespace of this type.
async fn filled(redis: &Redis, counter_type: CounterType) -> Arc<CounterService> {
    let config = RedisConfig { url: redis.url(), ..RedisConfig::default() };
    let namespaces = RedisNamespaces::connect(&config, Clock::redis("counters", 0)).await.expect("a Redis");
    let counters = CounterService::new(namespaces, None, CountersConfig::default().waiting());
    let config = |config| Ok(NamespaceConfig { counter_type, ..config });
    counters.put_namespace(&name("n"), config).await.expect("a new namespace");
    change(&counters, Change::Add(5)).await.expect("an add");
    counters
}

fn shown(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

const CALLS: [(&str, Call); 12] = [
    ("get", |counters| Box::pin(async move { counters.get(&name("n"), &[counter("c")]).await.map(shown) })),
    ("get what was never there", |counters| {
        Box::pin(async move { counters.get(&name("n"), &[counter("never")]).await.map(shown) })
    }),
    ("list", |counters| Box::pin(async move { counters.list(&name("n"), "", 100).await.map(shown) })),
    ("events", |counters| {
        Box::pin(async move { counters.events(&name("n"), &counter("c"), 0..0, None, 10).await.map(shown) })
    }),
    ("sums", |counters| {
        Box::pin(async move { counters.sums(&name("n"), &counter("c"), Period::Minute, 0..0, None).await.map(shown) })
    }),
    ("recounts", |counters| Box::pin(async move { counters.recounts(&name("n"), &counter("c")).await.map(shown) })),
    ("add", |counters| Box::pin(async move { change(&counters, Change::Add(1)).await.map(shown) })),
    ("clear", |counters| Box::pin(async move { change(&counters, Change::Clear).await.map(shown) })),
    ("delete the counter", |counters| {
        Box::pin(async move { counters.delete_counter(&name("n"), &counter("c"), None).await.map(shown) })
    }),
    ("the namespace", |counters| Box::pin(async move { counters.namespace(&name("n")).await.map(shown) })),
    ("all namespaces", |counters| Box::pin(async move { counters.namespaces().await.map(shown) })),
    ("delete the namespace", |counters| {
        Box::pin(async move { counters.delete_namespace(&name("n"), None).await.map(shown) })
    }),
];

/// The calls that BEST_EFFORT counters answer otherwise.
const CACHED: [&str; 4] = ["get", "list", "add", "clear"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_the_first_call_after_a_loss_of_the_counters_says_so() {
    let types = [CounterType::Eventual, CounterType::Accurate, CounterType::BestEffort];
    for (counter_type, (what, call)) in types.iter().flat_map(|one| CALLS.map(|call| (*one, call))) {
        let is_called = match counter_type {
            CounterType::Eventual => true,
            CounterType::Accurate => what.starts_with("get"),
            CounterType::BestEffort => CACHED.contains(&what),
        };
        if !is_called {
            continue;
        }
        let redis = Redis::start().await;
        let counters = filled(&redis, counter_type).await;
        redis.flush().await;
        let answer = call(counters.clone()).await;
        assert!(matches!(answer, Err(Refusal::DataLoss { .. })), "{counter_type:?}, {what}: {answer:?}");
        // It was noted for other processes, too: an operator can accept the loss.
        let mut connection = redis.connection().await;
        let lost: Option<String> =
            redis::cmd("HGET").arg("tc:store").arg("lost").query_async(&mut connection).await.expect("an answer");
        assert!(lost.is_some(), "{counter_type:?}, {what}");
    }
}

/// Commands of this name that Redis has executed so far.
async fn executed(redis: &Redis, command: &str) -> u64 {
    calls(&mut redis.connection().await, command).await
}

/// A BEST_EFFORT count is read by MGET, and a mark by HMGET.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_read_of_a_counter_that_was_never_there_verifies_nothing() {
    let redis = Redis::start().await;
    let counters = filled(&redis, CounterType::BestEffort).await;
    let (marks, reads) = (executed(&redis, "hmget").await, executed(&redis, "mget").await);
    for number in 0..READS {
        let counts = counters.get(&name("n"), &[counter(&format!("never-{number}"))]).await.expect("a count");
        assert_eq!(counts[0].count, 0);
    }
    assert_eq!(executed(&redis, "mget").await - reads, READS);
    // Only by the probe, about once a second.
    let marks = executed(&redis, "hmget").await - marks;
    assert!(marks < READS / 5, "{marks} marks were read");
    let missing = counters.namespace(&name("missing")).await;
    assert!(matches!(missing, Err(Refusal::NamespaceNotFound { .. })), "{missing:?}");
    let added = counters.get(&name("missing"), &[counter("c")]).await;
    assert!(matches!(added, Err(Refusal::NamespaceNotFound { .. })), "{added:?}");
}
