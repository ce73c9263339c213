//! Bad input over gRPC: each has its code, its reason and its field, and changes nothing (N2, N3).

use super::house::{House, Wire};
use super::machines::listed;
use super::now_ms;
use tallystone_client::{CounterEvent, CounterType, IdempotencyToken, Namespace, NamespaceConfig, NewAdd, NewClear};
use tallystone_proto::counter::v1 as wire;
use tonic::{Code, Status};
use tonic_types::{RpcStatusExt, StatusExt};

const NS: &str = "ns";
const FAR_FUTURE_MS: i64 = 4_102_444_800_000;

/// What a refusal says: code, reason, field.
type Said = (Code, String, String);

fn said(status: Status) -> Said {
    let details = status.get_error_details();
    let field = details.bad_request().and_then(|bad| bad.field_violations.first()).map(|found| found.field.clone());
    let info = details.error_info().unwrap_or_else(|| panic!("{status:?} has no reason"));
    assert_eq!(info.domain, "tallystone");
    (status.code(), info.reason.clone(), field.unwrap_or_default())
}

fn saying(code: Code, reason: &str, field: &str) -> Said {
    (code, reason.to_owned(), field.to_owned())
}

fn invalid(field: &str) -> Said {
    saying(Code::InvalidArgument, "INVALID_ARGUMENT", field)
}

fn token(token: &str, generation_time_ms: i64) -> Option<wire::IdempotencyToken> {
    Some(wire::IdempotencyToken { token: token.to_owned(), generation_time_ms })
}

fn now() -> i64 {
    now_ms().cast_signed()
}

/// All that can be seen of a namespace with one counter "c".
#[derive(Debug, PartialEq)]
struct Seen {
    count: i64,
    counters: Vec<String>,
    events: Vec<CounterEvent>,
    namespaces: Vec<Namespace>,
}

async fn seen(house: &House) -> Seen {
    let events = house.clients[0].list_events(NS, "c", 0, 0, 1_000, "").await.expect("events");
    Seen {
        count: house.count(1, NS, "c").await.count,
        counters: listed(&house.clients[1], NS).await.into_keys().collect(),
        events: events.items,
        namespaces: house.clients[1].list_namespaces().await.expect("namespaces"),
    }
}

/// A namespace whose counts are exact at once, and in it a counter with two events.
async fn furnished() -> (House, Wire) {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() }).await;
    for (name, delta) in [("first", 40), ("second", 2)] {
        let add = NewAdd::new("c", delta).token(IdempotencyToken::new(name, now_ms()));
        house.clients[0].add(NS, add).await.expect("an add");
    }
    let wire = house.wire(0).await;
    (house, wire)
}

#[tokio::test]
async fn n2_n3_bad_adds_are_refused_each_for_its_reason_and_change_nothing() {
    let (house, wire) = furnished().await;
    let before = seen(&house).await;
    let taken = before.events[0].event_time_ms.cast_signed();
    let add =
        |namespace: &str, counter: &str, delta: i64, token: Option<wire::IdempotencyToken>| wire::AddCountRequest {
            namespace: namespace.to_owned(),
            counter: counter.to_owned(),
            delta,
            token,
            ..Default::default()
        };
    let out_of_range = |reason| saying(Code::OutOfRange, reason, "");
    let bad_time = || invalid("token.generation_time_ms");
    let cases = [
        (add("", "c", 1, None), invalid("namespace")),
        (add(&"n".repeat(65), "c", 1, None), invalid("namespace")),
        (add("a/b", "c", 1, None), invalid("namespace")),
        (add("nowhere", "c", 1, None), saying(Code::NotFound, "NAMESPACE_NOT_FOUND", "")),
        (add(NS, "", 1, None), invalid("counter")),
        (add(NS, &"c".repeat(129), 1, None), invalid("counter")),
        (add(NS, "c\n", 1, None), invalid("counter")),
        (add(NS, "c", 1, token("", now())), invalid("token")),
        (add(NS, "c", 1, token(&"t".repeat(65), now())), invalid("token")),
        (add(NS, "c", 1, token("t\0", now())), invalid("token")),
        (add(NS, "c", 1, token("t", 0)), bad_time()),
        (add(NS, "c", 1, token("t", -1)), bad_time()),
        (add(NS, "c", 1, token("t", i64::MIN)), bad_time()),
        (add(NS, "c", 1, token("t", i64::MAX)), out_of_range("TOO_EARLY")),
        (add(NS, "c", 1, token("t", FAR_FUTURE_MS)), out_of_range("TOO_EARLY")),
        (add(NS, "c", 1, token("t", now() + 60_000)), out_of_range("TOO_EARLY")),
        (add(NS, "c", 1, token("t", now() - 60_000)), out_of_range("TOO_OLD")),
        (add(NS, "c", 1, token("t", 1)), saying(Code::FailedPrecondition, "TOKEN_EXPIRED", "")),
        (add(NS, "c", i64::MAX, None), out_of_range("OVERFLOW")),
        (add(NS, "c", i64::MIN, None), out_of_range("OVERFLOW")),
        (add(NS, "c", i64::MIN, token("t", now())), out_of_range("OVERFLOW")),
        (add(NS, "c", 41, token("first", taken)), saying(Code::AlreadyExists, "TOKEN_CONFLICT", "")),
        (add(NS, "c", -40, token("first", taken)), saying(Code::AlreadyExists, "TOKEN_CONFLICT", "")),
    ];
    let bounded = |min, max| wire::AddCountRequest { min, max, ..add(NS, "c", 1, None) };
    let of_bounds = [
        (bounded(Some(3), Some(2)), invalid("min")),
        (bounded(Some(0), None), invalid("min")),
        (bounded(None, Some(0)), invalid("max")),
    ];
    let labeled = |source: &str, event_item_key: &str, token| {
        let (source, event_item_key) = (source.to_owned(), event_item_key.to_owned());
        wire::AddCountRequest { source, event_item_key, ..add(NS, "c", 40, token) }
    };
    let of_labels = [
        (labeled(&"s".repeat(65), "", None), invalid("source")),
        (labeled("", &"é".repeat(33), None), invalid("event_item_key")),
        (labeled("a\nb", "", None), invalid("source")),
        (labeled("s", "", token("first", taken)), saying(Code::AlreadyExists, "TOKEN_CONFLICT", "")),
    ];
    for (request, expected) in cases.into_iter().chain(of_bounds).chain(of_labels) {
        let mut counters = wire.counters.clone();
        let refused = counters.add_count(request.clone()).await.expect_err("a bad add");
        assert_eq!(said(refused), expected, "{request:?}");
        let wire::AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key } = request;
        let request =
            wire::AddAndGetCountRequest { namespace, counter, delta, token, min, max, source, event_item_key };
        let refused = counters.add_and_get_count(request.clone()).await.expect_err("a bad add");
        assert_eq!(said(refused), expected, "{request:?}");
    }
    assert_eq!(seen(&house).await, before);
}

#[tokio::test]
async fn n2_an_overflow_is_refused_and_never_wrapped() {
    let (house, _wire) = furnished().await;
    // What is not rolled up yet may come to 2^62 in all; likewise in the other direction.
    for (counter, delta) in [("up", 1_i64 << 59), ("down", -(1_i64 << 59))] {
        let mut expected = 0;
        let mut refused = 0;
        for _ in 0..12 {
            let before = house.count(1, NS, counter).await.count;
            assert_eq!(before, expected);
            match house.clients[0].add(NS, NewAdd::new(counter, delta)).await {
                Ok(_) => expected += delta,
                Err(error) => {
                    let refusal = error.refused().unwrap_or_else(|| panic!("{error}"));
                    assert_eq!((refusal.code, refusal.reason.as_str()), (Code::OutOfRange, "OVERFLOW"));
                    refused += 1;
                }
            }
        }
        assert!(refused > 0 && expected != 0, "{counter}: {expected} after {refused} refusals");
        assert_eq!(house.count(0, NS, counter).await.count, expected);
        // There is room in the other direction.
        house.clients[0].add(NS, NewAdd::new(counter, -delta.signum())).await.expect("room");
        assert_eq!(house.count(0, NS, counter).await.count, expected - delta.signum());
    }
}

#[tokio::test]
async fn n2_bad_reads_clears_and_lists_are_refused() {
    let (house, wire) = furnished().await;
    let before = seen(&house).await;
    let mut counters = wire.counters.clone();
    let ns = || NS.to_owned();
    macro_rules! refused {
        ($call:ident, $request:expr, $expected:expr) => {{
            let request = $request;
            let refused = counters.$call(request.clone()).await.expect_err("bad input");
            assert_eq!(said(refused), $expected, "{request:?}");
        }};
    }
    let not_found = || saying(Code::NotFound, "NAMESPACE_NOT_FOUND", "");
    let long = "c".repeat(129);
    use wire::*;
    let get = |counter: &str| GetCountRequest { namespace: ns(), counter: counter.to_owned(), ..Default::default() };
    refused!(get_count, GetCountRequest { namespace: "nowhere".into(), ..get("c") }, not_found());
    refused!(get_count, get(""), invalid("counter"));
    refused!(get_count, get(&long), invalid("counter"));
    let of_many = |counters| GetCountsRequest { namespace: ns(), counters, ..Default::default() };
    refused!(get_counts, of_many(vec![]), invalid("counters"));
    refused!(get_counts, of_many(vec!["c".into(); 1_001]), invalid("counters"));
    for (min_exact_to_ms, wait_ms, field) in
        [(-1, 0, "min_exact_to_ms"), (i64::MIN, 0, "min_exact_to_ms"), (1, -1, "wait_ms"), (0, 30_001, "wait_ms")]
    {
        refused!(get_count, GetCountRequest { min_exact_to_ms, wait_ms, ..get("c") }, invalid(field));
        let counters = of_many(vec!["c".into()]);
        refused!(get_counts, GetCountsRequest { min_exact_to_ms, wait_ms, ..counters }, invalid(field));
    }
    let clear = |counter: &str, token| ClearCountRequest { namespace: ns(), counter: counter.to_owned(), token };
    refused!(clear_count, clear("", None), invalid("counter"));
    refused!(clear_count, clear("c", token("t", -5)), invalid("token.generation_time_ms"));
    refused!(clear_count, clear("c", token("t", 1)), saying(Code::FailedPrecondition, "TOKEN_EXPIRED", ""));
    refused!(clear_count, clear("c", token("t", FAR_FUTURE_MS)), saying(Code::OutOfRange, "TOO_EARLY", ""));
    // The token of an add is no clear's.
    let taken = before.events[0].event_time_ms.cast_signed();
    refused!(clear_count, clear("c", token("first", taken)), saying(Code::AlreadyExists, "TOKEN_CONFLICT", ""));
    let clears = vec![ClearCount { counter: "c".into(), token: None }; 1_001];
    refused!(clear_counts, ClearCountsRequest { namespace: ns(), clears }, invalid("clears"));
    let adds = vec![AddCount { counter: "c".into(), delta: 1, ..Default::default() }; 1_001];
    refused!(add_counts, AddCountsRequest { namespace: ns(), adds: adds.clone() }, invalid("adds"));
    refused!(add_and_get_counts, AddAndGetCountsRequest { namespace: ns(), adds }, invalid("adds"));
    let list =
        |page_size, page_token: &str| ListCountersRequest { namespace: ns(), page_size, page_token: page_token.into() };
    for (request, field) in [(list(-1, ""), "page_size"), (list(1_001, ""), "page_size"), (list(1, "?"), "page_token")]
    {
        refused!(list_counters, request, invalid(field));
    }
    let events = ListEventsRequest { namespace: ns(), counter: "c".into(), ..ListEventsRequest::default() };
    refused!(list_events, ListEventsRequest { from_ms: -1, ..events.clone() }, invalid("from_ms"));
    refused!(list_events, ListEventsRequest { from_ms: 9, to_ms: 5, ..events.clone() }, invalid("to_ms"));
    refused!(list_events, ListEventsRequest { page_size: 1_001, ..events.clone() }, invalid("page_size"));
    refused!(list_events, ListEventsRequest { page_token: "1.x".into(), ..events.clone() }, invalid("page_token"));
    refused!(list_events, ListEventsRequest { counter: String::new(), ..events }, invalid("counter"));
    let sums = GetSumsRequest { namespace: ns(), counter: "c".into(), period: 1, ..GetSumsRequest::default() };
    refused!(get_sums, GetSumsRequest { period: 0, ..sums.clone() }, invalid("period"));
    refused!(get_sums, GetSumsRequest { period: 4, ..sums.clone() }, invalid("period"));
    refused!(get_sums, GetSumsRequest { from_ms: -1, ..sums.clone() }, invalid("from_ms"));
    refused!(get_sums, GetSumsRequest { from_ms: 9, to_ms: 5, ..sums.clone() }, invalid("to_ms"));
    refused!(get_sums, GetSumsRequest { page_token: "1.x".into(), ..sums.clone() }, invalid("page_token"));
    refused!(get_sums, GetSumsRequest { counter: String::new(), ..sums }, invalid("counter"));
    assert_eq!(seen(&house).await, before);
}

#[tokio::test]
async fn n2_one_bad_item_does_not_spoil_the_others() {
    let (house, wire) = furnished().await;
    let taken = seen(&house).await.events[0].event_time_ms.cast_signed();
    let add = |counter: &str, delta, token| wire::AddCount {
        counter: counter.to_owned(),
        delta,
        token,
        ..Default::default()
    };
    let adds = vec![
        add("a", 1, None),
        add("", 1, None),
        add("c", 40, token("first", taken)),
        add("b", i64::MAX, None),
        add("c", 7, token("first", taken)),
        add("a", 1, token("t", now() - 60_000)),
        add("a", 1, token("t", 0)),
        add("b", 5, token("new", now())),
    ];
    let request = wire::AddCountsRequest { namespace: NS.to_owned(), adds };
    let mut counters = wire.counters.clone();
    let results = counters.add_counts(request).await.expect("a batch").into_inner().results;
    use wire::add_count_result::Outcome;
    let replies: Vec<Result<bool, Said>> = results
        .into_iter()
        .map(|result| match result.outcome.expect("an outcome") {
            Outcome::Ok(added) => Ok(added.duplicate),
            Outcome::Error(status) => {
                let details = status.get_error_details();
                let field = details.bad_request().map(|bad| bad.field_violations[0].field.clone());
                let reason = details.error_info().expect("a reason").reason.clone();
                Err((Code::from_i32(status.code), reason, field.unwrap_or_default()))
            }
        })
        .collect();
    let expected = [
        Ok(false),
        Err(invalid("adds[1].counter")),
        Ok(true),
        Err(saying(Code::OutOfRange, "OVERFLOW", "")),
        Err(saying(Code::AlreadyExists, "TOKEN_CONFLICT", "")),
        Err(saying(Code::OutOfRange, "TOO_OLD", "")),
        Err(invalid("adds[6].token.generation_time_ms")),
        Ok(false),
    ];
    assert_eq!(replies, expected);
    let counts = house.clients[1].get_many(NS, ["a", "b", "", "c"].map(str::to_owned).to_vec()).await.expect("counts");
    let counts: Vec<Result<i64, String>> = counts
        .into_iter()
        .map(|count| count.map(|count| count.count).map_err(|refused| refused.field.unwrap()))
        .collect();
    assert_eq!(counts, [Ok(1), Ok(5), Err("counters[2].counter".to_owned()), Ok(42)]);
    let clears = vec![NewClear::new("a"), NewClear::new("x".repeat(129)), NewClear::new("b")];
    let cleared = house.clients[0].clear_many(NS, clears).await.expect("a batch");
    assert!(cleared[0].is_ok() && cleared[2].is_ok());
    assert_eq!(cleared[1].as_ref().expect_err("too long").field.as_deref(), Some("clears[1].counter"));
    for (counter, expected) in [("a", 0), ("b", 0), ("c", 42)] {
        assert_eq!(house.count(0, NS, counter).await.count, expected, "{counter}");
    }
}

#[tokio::test]
async fn n2_batches_of_which_every_item_is_invalid_are_answered() {
    let (house, wire) = furnished().await;
    let before = seen(&house).await;
    let mut counters = wire.counters.clone();
    let ns = || NS.to_owned();
    let bad = ["", "c\n"].map(str::to_owned);
    macro_rules! refused {
        ($call:ident, $request:expr, $list:literal, $outcome:ident) => {{
            let request = $request;
            let answer = tokio::time::timeout(crate::system::program::SOON, counters.$call(request.clone())).await;
            let answer = answer.unwrap_or_else(|_| panic!("{request:?} is never answered"));
            let results = answer.expect("a batch").into_inner().results;
            let reasons = results.into_iter().map(|result| match result.outcome {
                Some(wire::$outcome::Outcome::Error(status)) => {
                    let details = status.get_error_details();
                    details.bad_request().map(|bad| bad.field_violations[0].field.clone()).unwrap_or_default()
                }
                other => panic!("{other:?} to {request:?}"),
            });
            let expected = [0, 1].map(|number| format!("{}[{number}].counter", $list));
            assert_eq!(reasons.collect::<Vec<_>>(), expected);
        }};
    }
    let adds: Vec<wire::AddCount> =
        bad.iter().map(|counter| wire::AddCount { counter: counter.clone(), delta: 1, ..Default::default() }).collect();
    let clears = bad.iter().map(|counter| wire::ClearCount { counter: counter.clone(), token: None }).collect();
    refused!(add_counts, wire::AddCountsRequest { namespace: ns(), adds: adds.clone() }, "adds", add_count_result);
    refused!(
        add_and_get_counts,
        wire::AddAndGetCountsRequest { namespace: ns(), adds },
        "adds",
        add_and_get_count_result
    );
    refused!(clear_counts, wire::ClearCountsRequest { namespace: ns(), clears }, "clears", clear_count_result);
    let request = wire::GetCountsRequest { namespace: ns(), counters: bad.to_vec(), ..Default::default() };
    refused!(get_counts, request, "counters", get_count_result);
    assert_eq!(seen(&house).await, before);
}
