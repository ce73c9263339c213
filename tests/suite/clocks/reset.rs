//! `tallystone counters clock`: counters that were written while Redis's clock was ahead (X6).

use super::WRONG;
use crate::system::program::{Ended, command, run};
use std::time::Instant;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::{
    Bounds, Change, CounterName, Events, Labels, NamespaceConfig, NamespaceName, NewEvent, Refusal, RollupLog, Token,
};
use tallystone_link::Clock;
use tallystone_tests::{ClockShift, TestRedis, volatile};

async fn call(redis: &TestRedis, more: &[&str]) -> Ended {
    let url = redis.url();
    let mut args = vec!["counters", "clock", "--json", "--redis-url", &url, "--allow-volatile"];
    args.extend(more);
    run(command(&args), "").await
}

#[tokio::test]
async fn x6_the_command_shows_how_far_counters_are_ahead_and_sets_them_back() {
    let shift = ClockShift::new();
    let redis = TestRedis::shifted(&shift).await;
    // The clocks of all servers are wrong, too: no witness refuses.
    let clock = Clock::redis("counters", 0);
    let connected = RedisNamespaces::connect(&volatile(&redis.url()), clock).await;
    let namespaces = connected.expect("the redis-server of the test");
    let name = NamespaceName::parse("ns").expect("a name");
    let counter = CounterName::parse("c").expect("a counter");
    let began = Instant::now();
    shift.set_ms(WRONG[0]);
    let namespace = namespaces.put(&name, NamespaceConfig::default()).await.expect("a namespace");
    let store = namespaces.open(&namespace).await.expect("its stores");
    let add = |time_ms| NewEvent {
        counter: counter.clone(),
        token: Token::drawn(),
        time_ms,
        change: Change::Add(5),
        bounds: Bounds::default(),
        labels: Labels::default(),
    };
    store.append(&[add(None)]).await.remove(0).expect("it counts");
    store.seal(std::slice::from_ref(&counter)).await.expect("sealed");

    // Under a clock that is wrong now, nothing is shown or changed.
    let refused = call(&redis, &["--reset"]).await;
    assert!(refused.code == Some(3) && refused.stderr.contains("CLOCK_SKEW"), "{refused:?}");

    shift.set_ms(0);
    let now_ms = tallystone_link::wall_ms();
    assert_eq!(store.append(&[add(Some(now_ms))]).await, [Err(Refusal::TooOld)]);
    let shown = call(&redis, &["ns"]).await.object();
    // What is ahead shrinks while time passes.
    let ahead_ms = shown["ahead_ms"].as_u64().expect("a number") + began.elapsed().as_millis() as u64;
    assert!(ahead_ms > 500_000, "{shown}");
    assert_eq!((&shown["reset"], &shown["unfinished"]), (&false.into(), &false.into()));
    let reset = call(&redis, &["--reset"]).await.object();
    assert_eq!((&reset["namespace"], &reset["reset"]), (&"ns".into(), &true.into()));
    let shown = call(&redis, &[]).await.object();
    assert_eq!((&shown["ahead_ms"], &shown["reset"]), (&0.into(), &false.into()), "{shown}");

    let namespace = namespaces.get(&name).await.expect("an answer").expect("the namespace");
    let store = namespaces.open(&namespace).await.expect("its stores");
    let later_ms = tallystone_link::wall_ms() + 600;
    store.append(&[add(Some(later_ms))]).await.remove(0).expect("an add of now counts");
    let unknown = call(&redis, &["unknown"]).await;
    assert!(unknown.code == Some(1) && unknown.stderr.contains("NAMESPACE_NOT_FOUND"), "{unknown:?}");
}
