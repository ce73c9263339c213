//! What each call promises, through two servers (N2, N3, N9, N11).

use super::house::{House, until};
use super::machines::Machines;
use super::now_ms;
use std::collections::{BTreeMap, BTreeSet};
use tallystone_client::{CounterType, IdempotencyToken, NamespaceConfig, NewAdd};
use tallystone_lua::counter::STATE_SHOWN;
use tallystone_proto::counter::v1 as wire;
use tonic::Code;
use tonic_types::StatusExt;

const NS: &str = "ns";
/// How often a clear and an add meet.
const MEETINGS: usize = 300;

fn typed(counter_type: CounterType) -> NamespaceConfig {
    NamespaceConfig { counter_type: Some(counter_type), ..NamespaceConfig::default() }
}

/// Not rolled up within an hour, unless a client reads.
fn patient() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(500), coalesce_ms: Some(3_600_000), ..NamespaceConfig::default() }
}

/// Rolled up as soon as can be.
fn prompt() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(500), coalesce_ms: Some(0), ..NamespaceConfig::default() }
}

#[tokio::test]
async fn n2_add_and_get_answers_what_a_read_would_right_after_it() {
    let house = House::without_rollups().await;
    for (namespace, counter_type) in [("eventual", CounterType::Eventual), ("accurate", CounterType::Accurate)] {
        house.put(namespace, typed(counter_type)).await;
        let token = IdempotencyToken::now();
        for (via, duplicate) in [(0, false), (1, true)] {
            let add = NewAdd::new("c", 5).token(token.clone());
            let answer = house.clients[via].add_and_get(namespace, add).await.expect("an add");
            assert_eq!((answer.added.duplicate, answer.added.event_time_ms), (duplicate, token.generation_time_ms));
            let expected = if counter_type == CounterType::Accurate { 5 } else { 0 };
            assert_eq!((answer.count, answer.exact_to_ms), (expected, 0), "{namespace}");
        }
        // In a batch each is read after all of it.
        let adds = [("c", 2), ("d", 3), ("c", -4)].map(|(counter, delta)| NewAdd::new(counter, delta));
        let answers = house.clients[0].add_and_get_many(namespace, adds.to_vec()).await.expect("a batch");
        let counts: Vec<i64> = answers.into_iter().map(|answer| answer.expect("an add").count).collect();
        assert_eq!(counts, if counter_type == CounterType::Accurate { [3, 3, 3] } else { [0, 0, 0] });
    }
}

#[tokio::test]
async fn n2_batches_are_answered_in_their_order() {
    let house = House::without_rollups().await;
    house.put(NS, typed(CounterType::Accurate)).await;
    // Every third has been counted before.
    let add = |number: i64| NewAdd::new(name_of(number), number + 1);
    let adds: Vec<NewAdd> = (0..1_000).map(|number| add(number).token(IdempotencyToken::now())).collect();
    let before = adds.iter().step_by(3).cloned().collect();
    house.clients[0].add_many(NS, before).await.expect("a batch");
    let results = house.clients[1].add_many(NS, adds.clone()).await.expect("a batch");
    for (number, (result, add)) in results.into_iter().zip(&adds).enumerate() {
        let added = result.expect("an add");
        let token = add.token.as_ref().expect("a token");
        assert_eq!((added.duplicate, added.event_time_ms), (number % 3 == 0, token.generation_time_ms), "{number}");
    }
    let names: Vec<String> = (0..1_000).rev().map(name_of).chain(["none".to_owned(), name_of(0)]).collect();
    for some in names.chunks(501) {
        let counts = house.clients[0].get_many(NS, some.to_vec()).await.expect("counts");
        for (name, count) in some.iter().zip(counts) {
            let expected = (0..1_000).find(|number| name_of(*number) == *name).map_or(0, |number| number + 1);
            assert_eq!(count.expect("a count").count, expected, "{name}");
        }
    }
}

/// All different.
fn name_of(number: i64) -> String {
    format!("c{:03}", (number * 7_919) % 1_000)
}

#[tokio::test]
async fn n2_a_clear_that_is_acknowledged_before_an_add_never_swallows_it() {
    let house = House::with_rollups().await;
    house.put("accurate", NamespaceConfig { counter_type: Some(CounterType::Accurate), ..prompt() }).await;
    house.put("eventual", prompt()).await;
    let mut wires = [house.wire(0).await, house.wire(1).await];
    for meeting in 0..MEETINGS {
        let via = meeting % 2;
        wires[via].clear("accurate", "c").await;
        wires[1 - via].add("accurate", "c", 1).await;
        assert_eq!(house.count(via, "accurate", "c").await.count, 1, "meeting {meeting}");
        // And what was added before it is gone.
        wires[via].clear("accurate", "c").await;
        assert_eq!(house.count(1 - via, "accurate", "c").await.count, 0, "meeting {meeting}");
        let counter = format!("c{meeting}");
        wires[via].add("eventual", &counter, 100).await;
        wires[1 - via].clear("eventual", &counter).await;
        wires[via].add("eventual", &counter, 1).await;
    }
    for meeting in 0..MEETINGS {
        let counter = format!("c{meeting}");
        let entry = house.until_entry("eventual", &counter, |entry| entry.last_write_ms > 0 && entry.count == 1).await;
        assert!(entry.exact_to_ms > entry.last_write_ms, "{entry:?}");
    }
    house.until_entry("accurate", "c", |entry| entry.exact_to_ms > entry.last_write_ms && entry.count == 0).await;
}

#[tokio::test]
async fn n12_lists_find_everything_page_by_page() {
    let house = House::with_rollups().await;
    house.put(NS, prompt()).await;
    let names: BTreeSet<String> = (0..200).map(|number| format!("counter/{number}")).collect();
    let (rolled_up, pending): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.ends_with(['0', '1']));
    let adds = |names: Vec<&String>| names.into_iter().map(|name| NewAdd::new(name, 1)).collect();
    house.clients[0].add_many(NS, adds(rolled_up.clone())).await.expect("adds");
    for name in rolled_up {
        house.until_entry(NS, name, |entry| entry.count == 1).await;
    }
    // From here on some are only pending.
    house.put(NS, NamespaceConfig { coalesce_ms: Some(3_600_000), ..NamespaceConfig::default() }).await;
    house.clients[0].add_many(NS, adds(pending)).await.expect("adds");
    for page_size in [1, 7, 1_000] {
        let (mut found, mut page_token) = (BTreeMap::new(), String::new());
        loop {
            let page = house.clients[1].list_counters(NS, page_size, &page_token).await.expect("a page");
            for entry in page.items {
                assert_eq!(entry.count, i64::from(entry.counter.ends_with(['0', '1'])), "{entry:?}");
                found.insert(entry.counter.clone(), entry);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), names, "pages of {page_size}");
    }

    // Events of several times, some at the same one, and a clear.
    let begin_ms = now_ms() - 400;
    let time_ms = |number: u64| begin_ms + number / 3;
    let tokens: Vec<String> = (0..100).map(|number| format!("t{number:03}")).collect();
    let add = |(number, token): (u64, &String)| {
        NewAdd::new("c", number.cast_signed() - 50).token(IdempotencyToken::new(token, time_ms(number)))
    };
    let results = house.clients[0].add_many(NS, (0..).zip(&tokens).map(add).collect()).await.expect("adds");
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for page_size in [1, 9, 1_000] {
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let to_ms = begin_ms + 1_000;
            let page = house.clients[1].list_events(NS, "c", begin_ms, to_ms, page_size, &page_token).await;
            let page = page.expect("a page");
            assert!(page.items.len() <= page_size as usize);
            found.extend(page.items);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let found_tokens: Vec<&String> = found.iter().map(|event| &event.token).collect();
        assert_eq!(found_tokens, tokens.iter().collect::<Vec<_>>(), "pages of {page_size}");
        for (number, event) in (0..).zip(&found) {
            assert_eq!((event.delta, event.event_time_ms), (number as i64 - 50, time_ms(number)), "{event:?}");
        }
    }
}

#[tokio::test]
async fn n12_events_since_any_time_are_one_short_page() {
    let house = House::without_rollups().await;
    house.put(NS, typed(CounterType::Eventual)).await;
    house.clients[0].add(NS, NewAdd::new("c", 5)).await.expect("an add");
    let mut connection = house.redis.connection().await;
    for (counter, expected) in [("c", 1), ("empty", 0)] {
        for since_ms in [1, now_ms() - 86_400_000, 0] {
            let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.expect("reset");
            let page = house.clients[1].list_events(NS, counter, since_ms, 0, 10, "").await.expect("a page");
            assert_eq!((page.items.len(), page.next_page_token.as_str()), (expected, ""), "since {since_ms}");
            let stats: String =
                redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("stats");
            // Four shards: what each has, which buckets there are of the hour that an event may be behind, their fields.
            let calls: u64 = ["mget", "hlen", "hkeys", "hmget"].into_iter().map(|name| calls_of(&stats, name)).sum();
            assert!((4..=60).contains(&calls), "{calls} since {since_ms}: {stats}");
        }
    }
}

fn calls_of(stats: &str, command: &str) -> u64 {
    let start = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
    calls.unwrap_or_default()
}

#[tokio::test]
async fn n12_events_that_arrive_between_two_pages_repeat_none_and_leave_the_order() {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { accept_limit_ms: Some(600_000), ..NamespaceConfig::default() }).await;
    // All in one window, so that all of them are at the same place in the log.
    let begin_ms = now_ms() / 500 * 500 - 500;
    let add = async |token: &str, offset_ms: u64| {
        let add = NewAdd::new("c", 1).token(IdempotencyToken::new(token, begin_ms + offset_ms));
        house.clients[0].add(NS, add).await.expect("an add");
    };
    // Tokens may have the characters of a page token.
    let tokens: Vec<String> = (0..40).map(|number| format!("t.{number:02}.{}", number % 7)).collect();
    for (number, token) in (0..).zip(&tokens) {
        add(token, 100 + number / 3).await;
    }
    for page_size in [1, 7] {
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = house.clients[1].list_events(NS, "c", begin_ms, 0, page_size, &page_token).await;
            let page = page.expect("a page");
            found.extend(page.items.into_iter().map(|event| (event.event_time_ms, event.token)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
            assert!(found.len() < 200, "pages of {page_size} do not come to an end: {found:?}");
            // Earlier than all that was listed.
            add(&format!("early {page_size} {}", found.len()), 50).await;
        }
        assert!(found.is_sorted_by(|one, other| one < other), "pages of {page_size}: {found:?}");
        let listed: Vec<&String> =
            found.iter().map(|(_, token)| token).filter(|token| token.starts_with('t')).collect();
        assert_eq!(listed, tokens.iter().collect::<Vec<_>>(), "pages of {page_size}");
    }
}

#[tokio::test]
async fn n12_a_list_of_events_ends_though_more_keep_coming() {
    let house = House::without_rollups().await;
    house.put(NS, typed(CounterType::Eventual)).await;
    let add = async |time_ms| {
        let add = NewAdd::new("c", 1).token(IdempotencyToken::drawn_for(time_ms));
        house.clients[0].add(NS, add).await.expect("an add");
    };
    add(now_ms()).await;
    add(now_ms()).await;
    let mut page = house.clients[0].list_events(NS, "c", 0, 0, 1, "").await.expect("a page");
    let end_ms: u64 = page.next_page_token.rsplit('.').next().and_then(|end| end.parse().ok()).expect("an end");
    let mut found = page.items.len();
    // As many as are read, until they are of later than the first page knew of.
    while !page.next_page_token.is_empty() {
        assert!(now_ms() < end_ms + 60_000, "it does not end");
        add(now_ms()).await;
        page = house.clients[0].list_events(NS, "c", 0, 0, 1, &page.next_page_token).await.expect("a page");
        assert!(page.items.iter().all(|event| event.event_time_ms < end_ms), "{page:?}");
        found += page.items.len();
    }
    assert!(found > 2 && now_ms() >= end_ms, "{found}");
}

#[tokio::test]
async fn n11_a_read_hurries_its_rollup_on_and_no_other() {
    let house = House::with_rollups().await;
    house.put(NS, patient()).await;
    for counter in ["read", "not read"] {
        house.clients[0].add(NS, NewAdd::new(counter, 3)).await.expect("an add");
    }
    let count = until(async || house.count(0, NS, "read").await, |counted| counted.count == 3).await;
    assert!(count.exact_to_ms > 0);
    let other = house.entry(NS, "not read").await.expect("a counter");
    assert_eq!((other.count, other.exact_to_ms), (0, 0), "it waits for more to come, for an hour");
    until(async || house.count(1, NS, "not read").await, |counted| counted.count == 3).await;
}

#[tokio::test]
async fn n11_a_read_hurries_on_what_came_after_a_rollup_too() {
    let house = House::with_rollups().await;
    house.put(NS, patient()).await;
    for count in 1..=2 {
        house.clients[0].add(NS, NewAdd::new("c", 1)).await.expect("an add");
        until(async || house.count(0, NS, "c").await, |counted| counted.count == count).await;
    }
}

/// The clocks that the shards of a namespace have shown (Unix ms).
async fn shown_clocks(house: &House) -> Vec<u64> {
    let mut connection = house.redis.connection().await;
    let mut shown = Vec::new();
    for shard in 0..8 {
        let state: Vec<u8> =
            redis::cmd("GET").arg(state_key(shard)).query_async(&mut connection).await.expect("a state");
        shown.push(state[STATE_SHOWN].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }
    shown
}

/// Has the shards show these clocks (Unix ms), as after a time at which the store's clock was ahead.
async fn show(house: &House, clocks_ms: [u64; 8]) {
    let mut connection = house.redis.connection().await;
    for (shard, shown_ms) in clocks_ms.into_iter().enumerate() {
        let mut set = redis::cmd("SETRANGE");
        set.arg(state_key(shard)).arg(STATE_SHOWN.start).arg(&shown_ms.to_be_bytes()[2..]);
        set.query_async::<()>(&mut connection).await.expect("a state");
    }
}

fn state_key(shard: usize) -> String {
    format!("tc:{{{NS}/{shard}}}:state")
}

/// An accurate namespace whose counters are in all shards.
async fn wide() -> House {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { buckets_per_id: Some(8), ..typed(CounterType::Accurate) }).await;
    house
}

#[tokio::test]
async fn n7_a_clear_is_after_what_came_before_and_before_what_comes_after_whatever_clocks_show() {
    let house = wide().await;
    // The store's clock was ahead, and has been set back: each shard keeps the latest time that it has shown.
    let now_ms = now_ms();
    show(&house, [900, 0, 300, 600, 100, 800, 200, 700].map(|ahead_ms| now_ms + ahead_ms)).await;
    let mut wires = [house.wire(0).await, house.wire(1).await];
    for round in 0..20 {
        for _ in 0..5 {
            wires[round % 2].add(NS, "c", 1).await;
        }
        assert_eq!(house.count(0, NS, "c").await.count, 5, "round {round}: all that came after the last clear");
        wires[1 - round % 2].clear(NS, "c").await;
        assert_eq!(house.count(1, NS, "c").await.count, 0, "round {round}: none of what came before it");
    }
}

#[tokio::test]
async fn n7_a_clear_that_would_wait_for_long_is_refused_and_moves_no_clock() {
    let house = wide().await;
    // One shard knows a wrong clock; the others do not.
    let mut clocks_ms = [now_ms(); 8];
    clocks_ms[3] += 600_000;
    show(&house, clocks_ms).await;
    let mut wires = [house.wire(0).await, house.wire(1).await];
    for _ in 0..20 {
        wires[0].add(NS, "c", 1).await;
    }
    for via in [0, 1] {
        let request = wire::ClearCountRequest { namespace: NS.to_owned(), counter: "c".to_owned(), token: None };
        let refused = wires[via].counters.clear_count(request).await.expect_err("a clear that cannot be placed");
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        let info = refused.get_error_details().error_info().expect("a reason").clone();
        assert_eq!((info.reason.as_str(), info.metadata["applied"].as_str()), ("STORE_UNAVAILABLE", "no"));
    }
    assert_eq!(house.count(0, NS, "c").await.count, 20, "nothing was cleared");
    let shown = shown_clocks(&house).await;
    let ahead: Vec<usize> = (0..8).filter(|shard| shown[*shard] > now_ms()).collect();
    assert_eq!(ahead, [3], "{shown:?}");
}

#[tokio::test]
async fn n7_a_clear_without_a_token_removes_acknowledged_adds_that_are_ahead_of_the_clock() {
    let house = wide().await;
    let mut wires = [house.wire(0).await, house.wire(1).await];
    for via in [0, 1] {
        let counter = format!("c{via}");
        for number in 0..10 {
            let ahead = IdempotencyToken::drawn_for(now_ms() + 90 * (number + 1));
            house.clients[via].add(NS, NewAdd::new(&counter, 1).token(ahead)).await.expect("an add");
        }
        let cleared = wires[1 - via].clear(NS, &counter).await;
        assert_eq!(house.count(via, NS, &counter).await.count, 0, "what was acknowledged before {cleared:?}");
        // The clear is not ahead of the clock: what comes after it counts, also under a time of the caller's own.
        house.clients[via].add(NS, NewAdd::new(&counter, 2)).await.expect("an add");
        wires[via].add(NS, &counter, 3).await;
        assert_eq!(house.count(via, NS, &counter).await.count, 5, "what came after {cleared:?}");
    }
}

#[tokio::test]
async fn n7_clears_with_and_without_a_token_in_one_call_do_not_move_the_clock_ahead() {
    let house = wide().await;
    let mut wire = house.wire(0).await;
    for round in 0..40 {
        wire.add(NS, "now", 1).await;
        let ahead_ms =
            (shown_clocks(&house).await.into_iter().max().expect("clocks").max(now_ms()) + 900).cast_signed();
        let token = wire::IdempotencyToken { token: format!("t{round}"), generation_time_ms: ahead_ms };
        let clears = vec![
            wire::ClearCount { counter: "now".to_owned(), token: None },
            wire::ClearCount { counter: format!("ahead{round}"), token: Some(token) },
        ];
        let request = wire::ClearCountsRequest { namespace: NS.to_owned(), clears };
        let results = wire.counters.clear_counts(request).await.expect("clears").into_inner().results;
        for result in results {
            assert!(matches!(result.outcome, Some(wire::clear_count_result::Outcome::Ok(_))), "{result:?}");
        }
        assert_eq!(house.count(1, NS, "now").await.count, 0, "round {round}");
        let shown = shown_clocks(&house).await;
        assert!(shown.iter().all(|shown_ms| *shown_ms <= now_ms()), "round {round}: {shown:?} at {}", now_ms());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_everything_is_rolled_up_after_every_process_was_killed_without_any_read() {
    let mut machines = Machines::start(2).await;
    let config = NamespaceConfig { accept_limit_ms: Some(1_000), coalesce_ms: Some(500), ..NamespaceConfig::default() };
    machines.clients[0].put_namespace(NS, config).await.expect("a new namespace");
    let mut expected = BTreeMap::new();
    for round in 0..3 {
        for via in 0..2_i64 {
            let adds: Vec<NewAdd> =
                (0..300).map(|number| NewAdd::new(format!("c{number}"), number * 10 + via + round)).collect();
            for add in &adds {
                *expected.entry(add.counter.clone()).or_insert(0) += add.delta;
            }
            let results = machines.clients[via as usize].add_many(NS, adds).await.expect("adds");
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        // Whatever anybody had in mind is gone.
        for server in machines.counters.iter_mut().chain(&mut machines.queues) {
            server.kill().await;
        }
        for worker in &mut machines.workers {
            worker.kill().await;
        }
        machines.redis.kill().await;
        machines.redis.restart().await;
        for server in machines.queues.iter_mut().chain(&mut machines.counters) {
            server.restart().await;
        }
        for worker in &mut machines.workers {
            worker.start();
        }
    }
    machines.until_rolled_up(NS, &expected).await;
}

#[tokio::test]
async fn n3_a_token_counts_once_however_many_send_it_at_once() {
    let house = House::without_rollups().await;
    house.put(NS, typed(CounterType::Accurate)).await;
    for round in 1..=30_i64 {
        let token = IdempotencyToken::now();
        let add = wire::AddCountRequest {
            namespace: NS.to_owned(),
            counter: "c".to_owned(),
            delta: 1,
            token: Some(wire::IdempotencyToken {
                token: token.token,
                generation_time_ms: token.generation_time_ms.cast_signed(),
            }),
            ..Default::default()
        };
        let mut tasks = tokio::task::JoinSet::new();
        for via in 0..20 {
            let (mut wire, add) = (house.wire(via % 2).await, add.clone());
            tasks.spawn(async move { wire.counters.add_count(add).await.expect("an add").into_inner().duplicate });
        }
        let counted = tasks.join_all().await.into_iter().filter(|duplicate| !duplicate).count();
        assert_eq!(counted, 1);
        assert_eq!(house.count(0, NS, "c").await.count, round);
    }
}

#[tokio::test]
async fn n7_clears_of_both_kinds_in_one_call_move_no_clock_ahead() {
    let house = wide().await;
    let mut wire_client = house.wire(0).await;
    for number in 0..40 {
        let token = wire::IdempotencyToken { token: format!("t{number}"), generation_time_ms: now_ms() as i64 + 900 };
        let clears = vec![
            wire::ClearCount { counter: "a".to_owned(), token: None },
            wire::ClearCount { counter: "b".to_owned(), token: Some(token) },
        ];
        let request = wire::ClearCountsRequest { namespace: NS.to_owned(), clears };
        let results = wire_client.counters.clear_counts(request).await.expect("clears").into_inner().results;
        let is_ok =
            |result: &wire::ClearCountResult| matches!(result.outcome, Some(wire::clear_count_result::Outcome::Ok(_)));
        assert!(results.iter().all(is_ok), "{results:?}");
    }
    let shown = shown_clocks(&house).await;
    assert!(shown.iter().all(|shown_ms| *shown_ms <= now_ms()), "{shown:?}");
    for number in 0..40 {
        house.clients[1].add(NS, NewAdd::new(format!("c{number}"), 1)).await.expect("an add with a token of now");
    }
}
