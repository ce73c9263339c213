//! What users type, and what they see.

use super::outcome::Outcome;
use super::session::{cli_error, refusal};
use super::text::{count_text, exactness};
use super::token::repeat_hint;
use super::watch::changed;
use super::*;
use crate::args::{Cli, Verb};
use crate::duration::{format_time, now_ms};
use clap::Parser;
use tallystone_client::{
    Applied, Cardinality, Code, Counted, CounterType, Error, IdempotencyToken, NamespaceConfig, PublishedTo, Refused,
    Threshold,
};

fn parse(line: &str) -> Result<CounterArgs, clap::Error> {
    let cli = Cli::try_parse_from(["tallystone", "counter"].into_iter().chain(line.split(' ')))?;
    match cli.verb {
        Verb::Counter(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

fn add(line: &str) -> add::AddArgs {
    match parse(line).unwrap().verb {
        CounterVerb::Add(args) => args,
        other => panic!("{other:?}"),
    }
}

fn threshold(prefix: &str, count: i64) -> Threshold {
    Threshold { prefix: prefix.to_owned(), count }
}

fn put(line: &str) -> namespace::PutArgs {
    match parse(line).unwrap().verb {
        CounterVerb::Namespace(namespace::NamespaceVerb::Put(args)) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn n2_deltas_may_be_below_zero() {
    let deltas = ["add x", "add x 5", "add x -5", "add x -5 --get", "add x --get -9223372036854775808"];
    let parsed = deltas.map(|line| add(line).delta);
    assert_eq!(parsed, [None, Some(5), Some(-5), Some(-5), Some(i64::MIN)]);
    assert_eq!(add("add -").counter, "-");
    for bad in ["add", "add x 1.5", "add x 9223372036854775808", "add x 1 2"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn n3_a_token_needs_its_time_and_the_hint_can_be_typed() {
    assert!(parse("add x --token t").is_err());
    assert!(parse("clear x --token t").is_err());
    let token = IdempotencyToken::new("t", 1_357_035_300_123);
    let hint = repeat_hint(&token);
    let flags = &hint[hint.find("--token").unwrap()..hint.find(" counts once").unwrap()];
    assert_eq!(add(&format!("add x {flags}")).token.into_token(), token);
    let drawn = add(&format!("add x --at {}", format_time(5))).token.into_token();
    assert_eq!((drawn.generation_time_ms, drawn.token.len()), (5, 32));
}

#[test]
fn the_counter_server_may_be_given_before_and_after_the_verb() {
    for line in ["--counters db:1 get x", "get x --counters db:1", "namespace ls --counters db:1"] {
        assert_eq!(parse(line).unwrap().server_of_counters, "db:1", "{line}");
    }
    assert_eq!(add("add x --namespace ads").within.namespace, "ads");
    for bad in ["get", "watch", "watch x --interval 0s", "watch x --interval 1", "events", "namespace put"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn n1_every_parameter_of_a_namespace_is_a_flag() {
    let line = "namespace put ads --type best-effort --cardinality low --ttl 1s --accept-limit 2s --coalesce 3s \
                --rollup-batch-count 4 --num-queues 5 --capacity-bytes 6 --buckets-per-id 7 --seconds-per-bucket 8 \
                --seconds-per-slice 9 --close-after 10s --delete-after 11s --expire-after 12s --publish-to k f \
                --archived true --threshold 10 --threshold ab=c=-5 --region eu --region us";
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = NamespaceConfig {
        counter_type: Some(CounterType::BestEffort),
        cardinality: Some(Cardinality::Low),
        ttl_ms: Some(1_000),
        accept_limit_ms: Some(2_000),
        coalesce_ms: Some(3_000),
        rollup_batch_count: Some(4),
        num_queues: Some(5),
        capacity_bytes: Some(6),
        buckets_per_id: Some(7),
        seconds_per_bucket: Some(8),
        seconds_per_slice: Some(9),
        close_after_ms: Some(10_000),
        delete_after_ms: Some(11_000),
        expire_after_ms: Some(12_000),
        published_to: Some(PublishedTo { key: "k".to_owned(), field: "f".to_owned() }),
        archived: Some(true),
        thresholds: Some(vec![threshold("", 10), threshold("ab=c", -5)]),
        regions: Some(vec!["eu".to_owned(), "us".to_owned()]),
    };
    assert_eq!(put(&line).config.into_config(), expected);
    assert_eq!(put("namespace put ads").config.into_config(), NamespaceConfig::default());
    let no_more = NamespaceConfig { published_to: Some(PublishedTo::default()), ..NamespaceConfig::default() };
    assert_eq!(put("namespace put ads --no-publish").config.into_config(), no_more);
    let below = NamespaceConfig { thresholds: Some(vec![threshold("", -7)]), ..NamespaceConfig::default() };
    assert_eq!(put("namespace put ads --threshold -7").config.into_config(), below);
    let none = NamespaceConfig { thresholds: Some(Vec::new()), ..NamespaceConfig::default() };
    assert_eq!(put("namespace put ads --no-thresholds").config.into_config(), none);
    let alone = NamespaceConfig { regions: Some(Vec::new()), ..NamespaceConfig::default() };
    assert_eq!(put("namespace put ads --no-regions").config.into_config(), alone);
    assert!(parse("namespace put ads --threshold x").is_err());
    assert!(parse("namespace put ads --file x --ttl 1s").is_err(), "a file has all parameters");
}

#[test]
fn n14_what_is_deleted_is_named_and_may_be_confirmed_beforehand() {
    for line in ["delete x", "delete x --yes", "delete x --dry-run --namespace ads", "delete x --token t --at 5s"] {
        assert!(matches!(parse(line).unwrap().verb, CounterVerb::Delete(_)), "{line}");
    }
    for line in ["namespace delete ads", "namespace delete ads --yes", "namespace delete ads --dry-run"] {
        let verb = parse(line).unwrap().verb;
        assert!(matches!(verb, CounterVerb::Namespace(namespace::NamespaceVerb::Delete(_))), "{line}");
    }
    for bad in ["delete", "delete x y", "delete x --yes --dry-run", "namespace delete"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn n19_a_time_to_be_exact_to_may_be_now_and_has_a_wait() {
    let get = |line: &str| match parse(line).unwrap().verb {
        CounterVerb::Get(args) => (args.exact_to, args.wait),
        other => panic!("{other:?}"),
    };
    assert_eq!(get("get x").0, None);
    assert_eq!(get("get x --exact-to 2013-01-01T10:15:00Z --wait 20s"), (Some(1_357_035_300_000), 20_000));
    let (now, wait) = get("get x --exact-to now");
    assert!(now.unwrap().abs_diff(now_ms()) < 10_000 && wait == 10_000);
    for bad in ["get x --wait 5s", "get x --exact-to soon", "get x --exact-to now --wait 5"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

fn counted(counter: &str, count: i64, exact_to_ms: u64) -> Outcome<Counted> {
    Outcome::new(counter.to_owned(), Ok(Counted { count, exact_to_ms, counter_type: CounterType::Eventual }))
}

#[test]
fn n11_a_count_is_shown_with_its_exactness() {
    let to_ms = 1_357_035_303_500;
    let shown = get::text(&[counted("x", -1_234, to_ms)], to_ms + 6_040);
    assert_eq!(shown, "-1,234  (exact to 2013-01-01T10:15:03.500Z, 6.0 s ago)");
    assert!(
        get::text(&[counted("x", 1, to_ms)], to_ms - 1).ends_with("0.0 s ago)"),
        "this clock is behind the store's"
    );
    assert_eq!(get::text(&[counted("x", 0, 0)], to_ms), "0  (not rolled up yet)");
    assert_eq!(exactness(Some(CounterType::BestEffort), 0, 1), "best effort");
    assert_eq!(exactness(Some(CounterType::Accurate), 5, 9), "includes every acknowledged add");
    assert_eq!(exactness(None, 0, 9), "no rollup yet", "of any type");
    assert_eq!(count_text(i64::MIN), "-9,223,372,036,854,775,808");
    let both = get::text(&[counted("x", 1, 0), counted("yy", 20, 0)], 0);
    assert_eq!(both, "COUNTER  COUNT\nx            1  not rolled up yet\nyy          20  not rolled up yet");
}

#[test]
fn only_changed_counts_are_shown() {
    let first = [counted("x", 1, 5), counted("y", 1, 5)];
    assert_eq!(changed(&[], &first).len(), 2, "the first read shows all");
    let second = [counted("x", 1, 9), counted("y", -2, 9)];
    assert_eq!(changed(&first, &second), [(&second[1], Some(1))]);
    assert_eq!(changed(&second, &second), []);
}

#[test]
fn errors_have_hints() {
    let json = |error: CliError| serde_json::to_string(&error).unwrap();
    let refused = |code, reason: &str| Refused {
        code,
        reason: reason.to_owned(),
        message: "no".to_owned(),
        field: None,
        metadata: Default::default(),
        applied: Applied::No,
        retry_after: None,
    };
    let connect = Error::Connect { url: "u".to_owned(), message: "refused".to_owned() };
    assert!(json(cli_error(&connect)).contains("tallystone dev"));
    assert!(json(cli_error(&connect)).contains("--counters"));
    assert!(json(refusal(&refused(Code::OutOfRange, "TOO_OLD"))).contains("accept limit"));
    assert!(json(refusal(&refused(Code::DeadlineExceeded, "NOT_EXACT_YET"))).contains("--wait"));
    assert!(json(refusal(&refused(Code::Unimplemented, ""))).contains("no counters"));
    let mut at_bound = refused(Code::FailedPrecondition, "BOUND_REACHED");
    at_bound.metadata.insert("count".to_owned(), "7".to_owned());
    assert!(json(refusal(&at_bound)).contains(r#""metadata":{"count":"7"}"#), "a program reads the count");
    let unavailable = Error::Unavailable { applied: Applied::Unknown, message: "gone".to_owned() };
    assert!(json(cli_error(&unavailable)).contains("may have been written"));
}
