//! Changes of a namespace: which are allowed, and when servers and workers follow them (N1).

use super::house::{House, until};
use tallystone_client::{Cardinality, Code, CounterType, Namespace, NamespaceConfig, NewAdd, Result};
use tallystone_counters::namespace::ARTICLE_EXAMPLE;
use tallystone_lua::counter::{NAMESPACES, STATE_REVISION};

fn refused<T: std::fmt::Debug>(answer: Result<T>) -> (Code, String, String) {
    let error = answer.expect_err("a refusal");
    let refused = error.refused().unwrap_or_else(|| panic!("{error}")).clone();
    (refused.code, refused.reason, refused.field.unwrap_or_default())
}

#[tokio::test]
async fn n1_the_seeds_configuration_loads_as_it_stands_and_reaches_every_server() {
    let house = House::without_rollups().await;
    let put = house.clients[0].put_persistence_configuration("my_dataset", ARTICLE_EXAMPLE).await.expect("the seed's");
    let expected = NamespaceConfig {
        counter_type: Some(CounterType::Eventual),
        cardinality: Some(Cardinality::Low),
        ttl_ms: Some(0),
        coalesce_ms: Some(10_000),
        rollup_batch_count: Some(32),
        num_queues: Some(8),
        capacity_bytes: Some(16_777_216),
        buckets_per_id: Some(4),
        seconds_per_bucket: Some(600),
        seconds_per_slice: Some(86_400),
        accept_limit_ms: Some(5_000),
        close_after_ms: Some(518_400_000),
        delete_after_ms: Some(604_800_000),
        expire_after_ms: Some(0),
        published_to: None,
        archived: Some(false),
        thresholds: Some(Vec::new()),
        regions: Some(Vec::new()),
    };
    assert_eq!(put, Namespace { name: "my_dataset".to_owned(), config: expected, revision: 1, incarnation: 0 });
    assert_eq!(house.clients[1].get_namespace("my_dataset").await.expect("a namespace"), put);
    // Once more, with one number changed: the rest is as it was.
    let changed = ARTICLE_EXAMPLE.replace(r#""coalesce_ms": 10000"#, r#""coalesce_ms": 250"#);
    let again = house.clients[1].put_persistence_configuration("my_dataset", &changed).await.expect("a change");
    assert_eq!(again.config, NamespaceConfig { coalesce_ms: Some(250), ..put.config });
    assert_eq!(house.clients[0].list_namespaces().await.expect("namespaces"), [again]);
}

#[tokio::test]
async fn n1_malformed_configurations_are_refused_and_change_nothing() {
    let house = House::without_rollups().await;
    house.put("ns", NamespaceConfig::default()).await;
    let before = house.clients[0].list_namespaces().await.expect("namespaces");
    let invalid = |field: &str| (Code::InvalidArgument, "INVALID_ARGUMENT".to_owned(), field.to_owned());
    for text in [
        "{}".to_owned(),
        "[".to_owned(),
        r#"{"persistence_configuration": [{"id": "ELSE"}]}"#.to_owned(),
        ARTICLE_EXAMPLE.replace(r#""accept_limit": "5s""#, r#""accept_limit": "5 minutes""#),
        ARTICLE_EXAMPLE.replace(r#""accept_limit": "5s""#, r#""accept_limit": "18446744073709551615s""#),
        ARTICLE_EXAMPLE.replace(r#""num_queues" : 8"#, r#""num_queues" : 99999999"#),
        ARTICLE_EXAMPLE.replace(r#""num_queues" : 8"#, r#""num_queues" : -1"#),
        ARTICLE_EXAMPLE.replace("EVENTUAL\"", "SOMETIMES\""),
    ] {
        let said = refused(house.clients[0].put_persistence_configuration("new", &text).await);
        assert_eq!(said, invalid("persistence_configuration"), "{text:.80}");
    }
    let over = ARTICLE_EXAMPLE.replace(r#""num_queues" : 8"#, r#""num_queues" : 2000"#);
    assert_eq!(
        refused(house.clients[0].put_persistence_configuration("new", &over).await),
        invalid("persistence_configuration")
    );
    let config = NamespaceConfig::default;
    let expiring =
        |counter_type| NamespaceConfig { counter_type: Some(counter_type), expire_after_ms: Some(600_000), ..config() };
    let cases = [
        ("num_queues", NamespaceConfig { num_queues: Some(0), ..config() }),
        ("rollup_batch_count", NamespaceConfig { rollup_batch_count: Some(0), ..config() }),
        ("coalesce_ms", NamespaceConfig { coalesce_ms: Some(u64::MAX), ..config() }),
        ("capacity_bytes", NamespaceConfig { capacity_bytes: Some(1), ..config() }),
        ("buckets_per_id", NamespaceConfig { buckets_per_id: Some(9), ..config() }),
        ("seconds_per_bucket", NamespaceConfig { seconds_per_bucket: Some(0), ..config() }),
        ("seconds_per_slice", NamespaceConfig { seconds_per_slice: Some(1_000), ..config() }),
        ("accept_limit_ms", NamespaceConfig { accept_limit_ms: Some(0), ..config() }),
        ("close_after_ms", NamespaceConfig { close_after_ms: Some(604_800_000), ..config() }),
        ("delete_after_ms", NamespaceConfig { delete_after_ms: Some(1), ..config() }),
        ("ttl_ms", NamespaceConfig { ttl_ms: Some(u64::MAX), ..config() }),
        ("expire_after_ms", NamespaceConfig { expire_after_ms: Some(599_999), ..config() }),
        ("expire_after_ms", NamespaceConfig { expire_after_ms: Some(u64::MAX), ..config() }),
        ("expire_after_ms", expiring(CounterType::Accurate)),
    ];
    for (field, config) in cases {
        for namespace in ["new", "ns"] {
            let said = refused(house.clients[0].put_namespace(namespace, config.clone()).await);
            assert_eq!(said, invalid(field), "{config:?}");
        }
    }
    for name in ["", "a/b", "{a}", &"n".repeat(65)] {
        assert_eq!(refused(house.clients[0].put_namespace(name, config()).await), invalid("name"), "{name}");
        assert_eq!(refused(house.clients[0].get_namespace(name).await), invalid("name"), "{name}");
    }
    let unknown = (Code::NotFound, "NAMESPACE_NOT_FOUND".to_owned(), String::new());
    assert_eq!(refused(house.clients[0].get_namespace("new").await), unknown);
    assert_eq!(house.clients[1].list_namespaces().await.expect("namespaces"), before);
}

#[tokio::test]
async fn n1_what_cannot_be_changed_is_refused_and_everything_else_is_changed() {
    let house = House::without_rollups().await;
    let typed = |counter_type| NamespaceConfig { counter_type: Some(counter_type), ..NamespaceConfig::default() };
    house.put("eventual", typed(CounterType::Eventual)).await;
    house.put("cached", typed(CounterType::BestEffort)).await;
    let fixed = [
        ("eventual", "buckets_per_id", NamespaceConfig { buckets_per_id: Some(5), ..NamespaceConfig::default() }),
        (
            "eventual",
            "seconds_per_bucket",
            NamespaceConfig { seconds_per_bucket: Some(60), ..NamespaceConfig::default() },
        ),
        ("eventual", "counter_type", typed(CounterType::BestEffort)),
        ("cached", "counter_type", typed(CounterType::Eventual)),
        ("cached", "counter_type", typed(CounterType::Accurate)),
    ];
    for (namespace, field, config) in fixed {
        let said = refused(house.clients[1].put_namespace(namespace, config).await);
        assert_eq!(said, (Code::InvalidArgument, "INVALID_ARGUMENT".to_owned(), field.to_owned()));
        assert_eq!(house.clients[0].get_namespace(namespace).await.expect("a namespace").revision, 1);
    }
    let changed = NamespaceConfig {
        counter_type: Some(CounterType::Accurate),
        cardinality: Some(Cardinality::Medium),
        ttl_ms: Some(5),
        coalesce_ms: Some(6),
        rollup_batch_count: Some(7),
        num_queues: Some(9),
        capacity_bytes: Some(2_048),
        buckets_per_id: Some(4),
        seconds_per_bucket: Some(600),
        seconds_per_slice: Some(1_200),
        accept_limit_ms: Some(400),
        close_after_ms: Some(61_000),
        delete_after_ms: Some(62_000),
        expire_after_ms: Some(0),
        published_to: None,
        archived: Some(false),
        thresholds: Some(Vec::new()),
        regions: Some(Vec::new()),
    };
    house.put("eventual", changed.clone()).await;
    let found = house.clients[1].get_namespace("eventual").await.expect("a namespace");
    assert_eq!((found.config, found.revision), (changed, 2));
}

#[tokio::test]
async fn n1_two_servers_that_change_a_namespace_at_once_do_not_undo_each_other() {
    let house = House::without_rollups().await;
    house.put("ns", NamespaceConfig::default()).await;
    let change = async |via: usize, number: u64| {
        let config = match via {
            0 => NamespaceConfig { coalesce_ms: Some(number), ..NamespaceConfig::default() },
            _ => NamespaceConfig { capacity_bytes: Some(10_000 + number), ..NamespaceConfig::default() },
        };
        until(
            async || house.clients[via].put_namespace("ns", config.clone()).await,
            |answer| match answer {
                Ok(_) => true,
                Err(error) => {
                    let reason = error.refused().map(|refused| refused.reason.clone());
                    assert_eq!(reason.as_deref(), Some("NAMESPACE_CHANGED"), "{error}");
                    false
                }
            },
        )
        .await
        .expect("a change");
    };
    for number in 1..=100 {
        tokio::join!(change(0, number), change(1, number));
        let found = house.clients[0].get_namespace("ns").await.expect("a namespace").config;
        assert_eq!((found.coalesce_ms, found.capacity_bytes), (Some(number), Some(10_000 + number)));
    }
}

/// What is left of a namespace's second revision when Redis comes back without its last writes.
async fn lost_a_change(registry_too: bool) {
    let house = House::with_rollups().await;
    let quick = |accept_limit_ms| NamespaceConfig {
        accept_limit_ms: Some(accept_limit_ms),
        coalesce_ms: Some(0),
        ..NamespaceConfig::default()
    };
    house.put("lost", quick(1_000)).await;
    let mut connection = house.redis.connection().await;
    let entry = redis::cmd("HGET").arg(NAMESPACES).arg("lost").take();
    let first: Vec<u8> = entry.query_async(&mut connection).await.unwrap();
    house.put("lost", quick(1_500)).await;
    // Servers and worker go by it.
    let counted = async |count| {
        for client in &house.clients {
            until(async || client.add("lost", NewAdd::new("c", 1)).await, Result::is_ok).await.expect("it counts");
        }
        house.until_entry("lost", "c", |entry| entry.count == count).await;
    };
    counted(2).await;
    let states: Vec<String> = redis::cmd("KEYS").arg("tc:{lost/?}:state").query_async(&mut connection).await.unwrap();
    assert!(!states.is_empty());
    for state in states {
        let revision = &1_u64.to_be_bytes()[8 - STATE_REVISION.len()..];
        let set = redis::cmd("SETRANGE").arg(state).arg(STATE_REVISION.start).arg(revision).take();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    if registry_too {
        let set = redis::cmd("HSET").arg(NAMESPACES).arg("lost").arg(first).take();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    counted(4).await;
    let revision = if registry_too { 1 } else { 2 };
    assert_eq!(house.clients[0].get_namespace("lost").await.expect("a namespace").revision, revision);
    // The lost revision's number may be issued again, for another configuration.
    house.put("lost", quick(2_000)).await;
    counted(6).await;
}

#[tokio::test]
async fn n1_shards_that_have_lost_a_change_are_configured_again() {
    lost_a_change(false).await;
}

#[tokio::test]
async fn n1_where_the_registry_has_lost_it_too_the_change_never_was() {
    lost_a_change(true).await;
}
