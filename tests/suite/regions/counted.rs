//! What each region answers while nothing is killed.

use super::stage::{NAMESPACE, REGIONS, Stage};
use crate::system::program::until;
use tallystone_client::{Code, CounterType, NamespaceConfig, NewClear, NewRecount};
use tallystone_tests::http_client;

#[tokio::test(flavor = "multi_thread")]
async fn n12_every_region_answers_the_sum_and_a_clear_reaches_all() {
    let stage = Stage::start(1).await;
    stage.namespace(CounterType::Accurate).await;
    let adder = stage.adder();
    for (region, delta) in [(0, 5), (1, 70), (0, 600)] {
        adder.add(region, "a/b c", delta).await;
    }
    let own = stage.global(0, "a/b c").await;
    assert_eq!((own.regions[0].region.as_str(), own.regions[0].count), ("eu", 605), "ACCURATE: at once");
    stage.assert_exact().await;
    let global = stage.global(2, "a/b c").await;
    let parts: Vec<(&str, i64)> = global.regions.iter().map(|part| (part.region.as_str(), part.count)).collect();
    assert_eq!((global.count, parts), (675, vec![("eu", 605), ("us", 70), ("ap", 0)]));
    // A recount begins another epoch.
    let recount = NewRecount::of_count(1_000, "a test");
    stage.regions[1].client.recount(NAMESPACE, "a/b c", recount).await.expect("a recount");
    until("the recount is everywhere", async || stage.global(2, "a/b c").await.count == 1_675).await;
    // The mirror is away: the clear comes late, and what follows it stays.
    stage.mirror.pause(true);
    adder.clear(0, "a/b c").await;
    for (region, delta) in [(0, 1), (1, 2), (2, 4)] {
        adder.add(region, "a/b c", delta).await;
    }
    let global = stage.global(0, "a/b c").await;
    assert_eq!((global.count, global.regions[0].count), (1, 1), "at once, though the others have not followed");
    until("it is rolled up, and the others are not", async || {
        let global = stage.global(0, "a/b c").await;
        assert_eq!(global.count, 1);
        global.exact_to_ms < global.regions[0].exact_to_ms
    })
    .await;
    let before = stage.global(1, "a/b c").await;
    assert_eq!(before.regions[1].count, 1_072, "{before:?}");
    stage.mirror.pause(false);
    stage.assert_exact().await;
    for (region, name) in REGIONS.iter().enumerate() {
        let found = stage.global(region, "a/b c").await;
        assert_eq!(found.regions.iter().map(|part| part.count).collect::<Vec<_>>(), [1, 2, 4], "{name}");
        let audit = stage.regions[region].client.audit(NAMESPACE, "a/b c").await.expect("an audit");
        assert_eq!(audit.recounted, audit.count, "an audit of {name} agrees");
    }
    // A counter that is deleted in one region.
    stage.regions[0].client.delete(NAMESPACE, NewClear::new("a/b c")).await.expect("a deletion");
    until("it is 0 everywhere", async || {
        stage.global(1, "a/b c").await.count == 0 && stage.global(2, "a/b c").await.count == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_a_namespace_gets_regions_later_and_what_is_wrong_is_refused() {
    let stage = Stage::start(2).await;
    let client = &stage.regions[0].client;
    client.put_namespace(NAMESPACE, NamespaceConfig::default()).await.expect("a namespace");
    let refused = client.get_global(NAMESPACE, "c").await.expect_err("no regions");
    let field = |error: tallystone_client::Error| {
        let refused = error.refused().expect("a refusal").clone();
        assert_eq!(refused.code, Code::InvalidArgument);
        refused.field.unwrap_or_default()
    };
    assert_eq!(field(refused), "global");
    for regions in [vec!["eu"], vec!["us", "ap"], vec!["eu", "eu"], vec!["eu", "u s"]] {
        let regions = Some(regions.into_iter().map(str::to_owned).collect());
        let config = NamespaceConfig { regions, ..NamespaceConfig::default() };
        let error = client.put_namespace(NAMESPACE, config.clone()).await.expect_err("it is wrong");
        assert!(field(error).ends_with("regions"), "{config:?}");
    }
    // Counted before the namespace has regions.
    let adder = stage.adder();
    for region in 0..2 {
        if region > 0 {
            stage.regions[region].client.put_namespace(NAMESPACE, NamespaceConfig::default()).await.expect("one");
        }
        adder.add(region, "c", 10).await;
    }
    stage.namespace(CounterType::Eventual).await;
    adder.add(2, "c", 10).await;
    stage.assert_exact().await;
    let url = stage.regions[2].counters.url();
    let path = format!("{url}/v1/namespaces/{NAMESPACE}/counters/c?global=true");
    let text = http_client().get(&path).send().await.expect("an answer").text().await.expect("a body");
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&answer["count"], &answer["regions"][0]["region"]), (&30.into(), &"eu".into()), "{text}");
    let both = http_client().get(format!("{path}&min_exact_to_ms=1")).send().await.expect("an answer");
    assert_eq!(both.status(), 400);
}
