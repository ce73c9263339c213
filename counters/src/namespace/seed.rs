//! The control plane's `persistence_configuration` in Netflix's article, read unchanged. Its keys that have no meaning here
//! (clusters, scopes) are accepted and ignored; any other key is a mistake, and refused by its name.

use super::config::{Cardinality, CounterType, NamespaceConfig};
use crate::refusal::Refusal;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// The example of Netflix's article as it is printed there, with its comments, missing braces and extra commas.
pub const ARTICLE_EXAMPLE: &str = include_str!("seed.json5");

const FIELD: &str = "persistence_configuration";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    persistence_configuration: Vec<Entry>,
}

/// The configuration of one storage.
#[derive(Deserialize)]
#[serde(tag = "id")]
enum Entry {
    /// Ignored: there is no separate cache, since checkpoints are fast enough to be read directly.
    #[serde(rename = "CACHE")]
    Cache(Cache),
    #[serde(rename = "COUNTER_ROLLUP")]
    Rollup(Rollup),
    #[serde(rename = "EVENT_STORAGE")]
    Events(Events),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollup {
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
    counter_cardinality: Option<Cardinality>,
    #[serde(default)]
    config: RollupConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
    #[serde(default)]
    config: EventsConfig,
    #[serde(default, rename = "lifecycleConfigs")]
    lifecycles: Lifecycles,
}

/// Where it is stored. Ignored: every storage is in one Redis.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Storage {
    #[serde(rename = "type")]
    _type: IgnoredAny,
    #[serde(rename = "cluster")]
    _cluster: IgnoredAny,
    #[serde(rename = "dataset")]
    _dataset: IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RollupConfig {
    counter_type: Option<CounterType>,
    ttl: Option<Seconds>,
    eventual_counter_config: Eventual,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Eventual {
    internal_config: Internal,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Internal {
    queue_config: Queue,
    rollup_batch_count: Option<Number>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Queue {
    num_queues: Option<Number>,
    coalesce_ms: Option<Number>,
    capacity_bytes: Option<Number>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventsConfig {
    time_partition: TimePartition,
    accept_limit: Option<Seconds>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TimePartition {
    buckets_per_id: Option<Number>,
    seconds_per_bucket: Option<Number>,
    seconds_per_slice: Option<Number>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lifecycles {
    #[serde(rename = "lifecycleConfig")]
    all: Vec<Lifecycle>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Lifecycle {
    Retention(OfRetention),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfRetention {
    #[serde(default)]
    config: Retention,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retention {
    close_after: Option<Seconds>,
    delete_after: Option<Seconds>,
}

/// `600` or `"600"`: the article has both.
#[derive(Clone, Copy)]
struct Number(u64);

/// `"5s"`.
#[derive(Clone, Copy)]
struct Seconds(u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Raw::deserialize(deserializer)? {
            Raw::Number(number) => Ok(Number(number)),
            Raw::Text(text) => {
                text.parse().map(Number).map_err(|_| serde::de::Error::custom(format!("'{text}' is not a number")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
        seconds.map(Seconds).ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a duration such as 5s")))
    }
}

impl Seconds {
    fn ms(self) -> Result<u64, Refusal> {
        self.0.checked_mul(1_000).ok_or_else(|| Refusal::invalid(FIELD, format!("{}s is too long", self.0)))
    }
}

impl NamespaceConfig {
    /// Reads a control plane's configuration (the article's section "Control plane"): JSON with comments, with or without the outer
    /// braces. What it leaves out has its default.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], which names the key and the reason.
    pub fn of_persistence_configuration(text: &str) -> Result<NamespaceConfig, Refusal> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<NamespaceConfig, Refusal> {
    // The article prints it without the outer braces.
    let braced = if text.trim_start().starts_with('"') { format!("{{{text}\n}}") } else { text.to_owned() };
    let outer: Outer = json5::from_str(&braced).map_err(|error| Refusal::invalid(FIELD, error.to_string()))?;
    let mut namespace = NamespaceConfig::default();
    for entry in outer.persistence_configuration {
        match entry {
            Entry::Cache(_) => {}
            Entry::Rollup(entry) => rollup(&mut namespace, entry)?,
            Entry::Events(entry) => events(&mut namespace, entry)?,
        }
    }
    namespace.check()?;
    Ok(namespace)
}

fn rollup(namespace: &mut NamespaceConfig, entry: Rollup) -> Result<(), Refusal> {
    let internal = entry.config.eventual_counter_config.internal_config;
    let queue = internal.queue_config;
    set(&mut namespace.cardinality, entry.counter_cardinality);
    set(&mut namespace.counter_type, entry.config.counter_type);
    set(&mut namespace.ttl_ms, entry.config.ttl.map(Seconds::ms).transpose()?);
    set(&mut namespace.num_queues, narrow(queue.num_queues)?);
    set(&mut namespace.coalesce_ms, queue.coalesce_ms.map(|number| number.0));
    set(&mut namespace.capacity_bytes, queue.capacity_bytes.map(|number| number.0));
    set(&mut namespace.rollup_batch_count, narrow(internal.rollup_batch_count)?);
    Ok(())
}

fn events(namespace: &mut NamespaceConfig, entry: Events) -> Result<(), Refusal> {
    let partition = entry.config.time_partition;
    set(&mut namespace.buckets_per_id, narrow(partition.buckets_per_id)?);
    set(&mut namespace.seconds_per_bucket, partition.seconds_per_bucket.map(|number| number.0));
    set(&mut namespace.seconds_per_slice, partition.seconds_per_slice.map(|number| number.0));
    set(&mut namespace.accept_limit_ms, entry.config.accept_limit.map(Seconds::ms).transpose()?);
    for Lifecycle::Retention(OfRetention { config }) in entry.lifecycles.all {
        set(&mut namespace.close_after_ms, config.close_after.map(Seconds::ms).transpose()?);
        set(&mut namespace.delete_after_ms, config.delete_after.map(Seconds::ms).transpose()?);
    }
    Ok(())
}

fn set<T>(parameter: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *parameter = value;
    }
}

fn narrow<T: TryFrom<u64>>(number: Option<Number>) -> Result<Option<T>, Refusal> {
    let narrow =
        |Number(number)| T::try_from(number).map_err(|_| Refusal::invalid(FIELD, format!("{number} is too large")));
    number.map(narrow).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
