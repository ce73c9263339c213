//! The control plane's `persistence_configuration` in Netflix's article, read unchanged. Its keys that have no meaning here
//! (clusters, scopes) are accepted and ignored; any other key is a mistake, and refused by its name.

mod entries;

use super::config::NamespaceConfig;
use crate::refusal::Refusal;
use entries::{Entry, Events, Kinds, Lifecycle, Outer, Rollup};
use serde::de::{DeserializeSeed, IgnoredAny};
use std::marker::PhantomData;

/// The example of Netflix's article as it is printed there, with its comments, missing braces and extra commas.
pub const ARTICLE_EXAMPLE: &str = include_str!("article.json5");

const FIELD: &str = "persistence_configuration";
/// Objects and lists of one text. The parser calls itself for each one that is inside another, and its stack is finite (S1).
const BRACKETS_MAX: usize = 256;

impl NamespaceConfig {
    /// Reads a control plane's configuration (the article's section "Control plane"): JSON with comments, with or
    /// without the outer braces. What it leaves out has its default.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], which gives the line, the key and the reason.
    pub fn of_persistence_configuration(text: &str) -> Result<NamespaceConfig, Refusal> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<NamespaceConfig, Refusal> {
    // Counted everywhere, also in texts and comments: then it does not matter which of them are nested.
    if text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() > BRACKETS_MAX {
        return Err(Refusal::invalid(FIELD, format!("has more than {BRACKETS_MAX} opening brackets")));
    }
    // The article prints it without the outer braces.
    let braced = if text.trim_start().starts_with('"') { format!("{{{text}\n}}") } else { text.to_owned() };
    // Whether it is JSON at all, to its end.
    json5::from_str::<IgnoredAny>(&braced).map_err(|error| refused(&error, ""))?;
    let kinds: Kinds = read(&braced, PhantomData)?;
    let mut namespace = NamespaceConfig::default();
    for entry in read(&braced, Outer(&kinds.persistence_configuration))? {
        match entry {
            Entry::Cache => {}
            Entry::Rollup(entry) => rollup(&mut namespace, entry),
            Entry::Events(entry) => events(&mut namespace, entry),
        }
    }
    namespace.check().map_err(|refusal| match refusal {
        Refusal::Invalid { field, why } => out_of_range(text, field, &why),
        other => other,
    })?;
    Ok(namespace)
}

/// Reads a text; an error has the line and the path of the key.
fn read<'de, S: DeserializeSeed<'de>>(text: &'de str, seed: S) -> Result<S::Value, Refusal> {
    let (mut track, mut deserializer) = (serde_path_to_error::Track::new(), json5::Deserializer::from_str(text));
    let read = seed.deserialize(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track));
    read.map_err(|error| match track.path().to_string().as_str() {
        "." => refused(&error, ""),
        path => refused(&error, &format!("{path}: ")),
    })
}

fn refused(error: &json5::Error, path: &str) -> Refusal {
    let line = error.position().map(|position| format!("line {}: ", position.line + 1)).unwrap_or_default();
    let error = error.to_string();
    let why = error.rsplit_once(" at line ").map_or(error.as_str(), |(why, _)| why);
    Refusal::invalid(FIELD, format!("{line}{path}{why}"))
}

/// A parameter is out of its bounds: in the last line that sets it, or by the default of one that is not set.
fn out_of_range(text: &str, field: &str, why: &str) -> Refusal {
    let key = match field {
        "coalesce_ms" => field,
        field => field.strip_suffix("_ms").unwrap_or(field),
    };
    let sets = |line: &str| {
        let rest = line.split("//").next().and_then(|line| line.split_once(key));
        rest.is_some_and(|(_, rest)| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
    };
    let line = text.lines().enumerate().filter(|(_, line)| sets(line)).last();
    let line = line.map(|(number, _)| format!("line {}: ", number + 1)).unwrap_or_default();
    Refusal::invalid(FIELD, format!("{line}{key}: {why}"))
}

fn rollup(namespace: &mut NamespaceConfig, entry: Rollup) {
    let internal = entry.config.eventual_counter_config.internal_config;
    let queue = internal.queue_config;
    set(&mut namespace.cardinality, entry.counter_cardinality);
    set(&mut namespace.counter_type, entry.config.counter_type);
    set(&mut namespace.ttl_ms, entry.config.ttl.map(|ttl| ttl.0));
    set(&mut namespace.num_queues, queue.num_queues.map(|number| number.0));
    set(&mut namespace.coalesce_ms, queue.coalesce_ms.map(|number| number.0));
    set(&mut namespace.capacity_bytes, queue.capacity_bytes.map(|number| number.0));
    set(&mut namespace.rollup_batch_count, internal.rollup_batch_count.map(|number| number.0));
}

fn events(namespace: &mut NamespaceConfig, entry: Events) {
    let partition = entry.config.time_partition;
    set(&mut namespace.buckets_per_id, partition.buckets_per_id.map(|number| number.0));
    set(&mut namespace.seconds_per_bucket, partition.seconds_per_bucket.map(|number| number.0));
    set(&mut namespace.seconds_per_slice, partition.seconds_per_slice.map(|number| number.0));
    set(&mut namespace.accept_limit_ms, entry.config.accept_limit.map(|limit| limit.0));
    for Lifecycle { config, .. } in entry.lifecycles.all {
        set(&mut namespace.close_after_ms, config.close_after.map(|after| after.0));
        set(&mut namespace.delete_after_ms, config.delete_after.map(|after| after.0));
    }
}

fn set<T>(parameter: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *parameter = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::config::{Cardinality, CounterType};

    #[test]
    fn s1_nested_brackets_do_not_end_the_process() {
        let nested = |open: &str, close: &str, depth: usize| {
            let scope = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            ARTICLE_EXAMPLE.replacen(r#""id": "CACHE","#, &format!(r#""id": "CACHE", "scope": {scope},"#), 1)
        };
        for (open, close) in [("[", "]"), ("{a:", "}"), ("[/*]*/", "]")] {
            let refused = parse(&nested(open, close, 5_000)).unwrap_err();
            assert!(refused.to_string().contains("256 opening brackets"), "{refused}");
            let deepest = std::thread::Builder::new().stack_size(1 << 20).spawn({
                let text = nested(open, close, 200);
                move || drop(parse(&text))
            });
            deepest.expect("a thread").join().expect("a small stack is enough");
        }
    }

    #[test]
    fn n1_the_seeds_example_loads_unchanged() {
        let expected = NamespaceConfig {
            counter_type: CounterType::Eventual,
            cardinality: Cardinality::Low,
            coalesce_ms: 10_000,
            rollup_batch_count: 32,
            num_queues: 8,
            capacity_bytes: 16_777_216,
            buckets_per_id: 4,
            seconds_per_bucket: 600,
            seconds_per_slice: 86_400,
            accept_limit_ms: 5_000,
            close_after_ms: 518_400_000,
            delete_after_ms: 604_800_000,
            expire_after_ms: 0,
            published_to: None,
            archived: false,
            thresholds: Vec::new(),
            regions: Vec::new(),
            ttl_ms: 0,
        };
        assert_eq!(parse(ARTICLE_EXAMPLE), Ok(expected.clone()));
        assert_eq!(parse(&format!("{{{ARTICLE_EXAMPLE}}}")), Ok(expected), "with its braces");
    }

    #[test]
    fn n1_every_parameter_of_it_takes_effect() {
        /// A text of the seed, its replacement, the parameter that it sets, and the expected value.
        type Case = (&'static str, &'static str, fn(&NamespaceConfig) -> u64, u64);
        let changes: [Case; 11] = [
            (r#""num_queues" : 8"#, r#""num_queues" : 9"#, |config| config.num_queues.into(), 9),
            (r#""coalesce_ms": 10000"#, r#""coalesce_ms": 77"#, |config| config.coalesce_ms, 77),
            (r#""capacity_bytes": 16777216"#, r#""capacity_bytes": 2048"#, |config| config.capacity_bytes, 2048),
            (r#""rollup_batch_count": 32"#, r#""rollup_batch_count": 5"#, |config| config.rollup_batch_count.into(), 5),
            (r#""buckets_per_id": 4"#, r#""buckets_per_id": 2"#, |config| config.buckets_per_id.into(), 2),
            (r#""seconds_per_bucket": "600""#, r#""seconds_per_bucket": 60"#, |config| config.seconds_per_bucket, 60),
            (
                r#""seconds_per_slice": "86400""#,
                r#""seconds_per_slice": "600""#,
                |config| config.seconds_per_slice,
                600,
            ),
            (r#""accept_limit": "5s""#, r#""accept_limit": "7s""#, |config| config.accept_limit_ms, 7_000),
            (r#""close_after": "518400s""#, r#""close_after": "90s""#, |config| config.close_after_ms, 90_000),
            (
                r#""delete_after": "604800s""#,
                r#""delete_after": "604801s""#,
                |config| config.delete_after_ms,
                604_801_000,
            ),
            (r#""counter_type": "EVENTUAL""#, r#""counter_type": "ACCURATE""#, |config| config.counter_type as u64, 2),
        ];
        for (from, to, of, expected) in changes {
            assert!(ARTICLE_EXAMPLE.contains(from), "{from}");
            let config = parse(&ARTICLE_EXAMPLE.replace(from, to)).unwrap_or_else(|refusal| panic!("{to}: {refusal}"));
            assert_eq!(of(&config), expected, "{to}");
        }
    }

    #[test]
    fn n1_malformed_configurations_are_refused_with_the_reason() {
        let bad = ["", "{}", "[1]", r#"{"persistence_configuration": [{"id": "ELSE"}]}"#];
        for text in bad.into_iter().map(str::to_owned).chain([
            ARTICLE_EXAMPLE.replace(r#""accept_limit": "5s""#, r#""accept_limit": "5 minutes""#),
            ARTICLE_EXAMPLE.replace(r#""num_queues" : 8"#, r#""num_queues" : 99999999"#),
            ARTICLE_EXAMPLE.replace("EVENTUAL\"", "SOMETIMES\""),
        ]) {
            assert!(matches!(parse(&text), Err(Refusal::Invalid { .. })), "{text:.60}");
        }
    }

    #[test]
    fn n1_an_unknown_key_is_refused_by_its_name() {
        let keys = ARTICLE_EXAMPLE.split('"').skip(1).step_by(2);
        let is_key = |word: &&str| {
            ARTICLE_EXAMPLE.contains(&format!("\"{word}\":")) || ARTICLE_EXAMPLE.contains(&format!("\"{word}\" :"))
        };
        let keys: std::collections::BTreeSet<&str> = keys.filter(is_key).collect();
        assert_eq!(keys.len(), 26, "{keys:?}");
        for key in keys {
            let text = ARTICLE_EXAMPLE.replacen(&format!("\"{key}\""), &format!("\"{key}x\""), 1);
            let refused = parse(&text).expect_err(key);
            // Without an id the entry has no type, and the error names the id.
            let named = if key == "id" { "`id`".to_owned() } else { format!("`{key}x`") };
            assert!(matches!(&refused, Refusal::Invalid { why, .. } if why.contains(&named)), "{key}: {refused}");
        }
        let elsewhere =
            ARTICLE_EXAMPLE.replace("\"counter_cardinality\"", "\"accept_limit\": \"5s\", \"counter_cardinality\"");
        let refused = parse(&elsewhere).expect_err("a key of another storage").to_string();
        assert!(refused.contains("`accept_limit`"), "{refused}");
    }

    #[test]
    fn n1_a_bad_configuration_is_refused_with_its_line_and_its_key() {
        let line_of = |text: &str, word: &str| text.lines().position(|line| line.contains(word)).unwrap() + 1;
        // What stands in the article, what takes its place, what marks the line, the key, the reason.
        for (from, to, mark, key, reason) in [
            (
                r#""counter_type": "EVENTUAL""#,
                r#""counter_typ": "EVENTUAL""#,
                "counter_typ\"",
                "counter_typ",
                "unknown",
            ),
            (r#""counter_type": "EVENTUAL""#, r#""counter_type": "NEVER""#, "NEVER", "counter_type", "NEVER"),
            (r#""num_queues" : 8"#, r#""num_queues" : 99999999"#, "99999999", "num_queues", "too large"),
            (r#""num_queues" : 8"#, r#""num_queues" : 2000"#, ": 2000", "num_queues", "1 to 1024"),
            (r#""num_queues" : 8"#, r#""num_queues" : -8"#, ": -8", "num_queues", "below 0"),
            (r#""num_queues" : 8"#, r#""num_queues" : [8]"#, "[8]", "num_queues", "a whole number"),
            (r#""accept_limit": "5s""#, r#""accept_limit": "5 minutes""#, "5 minutes", "accept_limit", "such as 5s"),
            (r#""accept_limit": "5s""#, r#""accept_limit": "5000s""#, "5000s", "accept_limit", "100 to 3600000"),
            (r#""type": "retention""#, r#""type": "tension""#, "tension", "type", "retention"),
            (r#""delete_after": "604800s""#, r#""delete_after": 7"#, ": 7", "delete_after", "string"),
            (r#""buckets_per_id": 4"#, r#""buckets_per_id": "x""#, "\"x\"", "buckets_per_id", "not a number"),
            (r#""id": "EVENT_STORAGE""#, r#""id": "ELSE""#, "ELSE", "id", "ELSE"),
            (r#""coalesce_ms": 10000"#, r#""coalesce_ms" 10000"#, "_ms\" 10000", "", "colon"),
        ] {
            assert!(ARTICLE_EXAMPLE.contains(from), "{from}");
            let text = ARTICLE_EXAMPLE.replacen(from, to, 1);
            let Err(Refusal::Invalid { field, why }) = parse(&text) else { panic!("{to} is not refused") };
            let line = format!("line {}: ", line_of(&text, mark));
            assert_eq!(field, FIELD);
            assert!(why.starts_with(&line) && why.contains(key) && why.contains(reason), "{to}: {why}, not {line}");
        }
    }
}
