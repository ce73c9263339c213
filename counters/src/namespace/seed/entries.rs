//! The form of the text: one type for each object of the article, and how its numbers and durations are read.

use crate::namespace::config::{Cardinality, CounterType};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// What each entry configures. It is read before the rest, so that an entry can be read as what it is: an error then has
/// its place in the text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kinds {
    pub(super) persistence_configuration: Vec<OfKind>,
}

#[derive(Deserialize)]
pub(super) struct OfKind {
    id: Kind,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum Kind {
    /// Ignored: there is no separate cache, since checkpoints are fast enough to be read directly.
    #[serde(rename = "CACHE")]
    Cache,
    #[serde(rename = "COUNTER_ROLLUP")]
    Rollup,
    #[serde(rename = "EVENT_STORAGE")]
    Events,
}

/// The configuration of one storage.
pub(super) enum Entry {
    Cache,
    Rollup(Rollup),
    Events(Events),
}

/// Reads the outer object.
pub(super) struct Outer<'a>(pub(super) &'a [OfKind]);

impl<'de> DeserializeSeed<'de> for Outer<'_> {
    type Value = Vec<Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Entry>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Outer<'_> {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with persistence_configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Entry>, A::Error> {
        let mut entries = Vec::new();
        while map.next_key::<String>()?.is_some() {
            entries = map.next_value_seed(Entries(self.0))?;
        }
        Ok(entries)
    }
}

/// Reads the list in it.
pub(super) struct Entries<'a>(&'a [OfKind]);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Entry>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of storages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Entry>, A::Error> {
        let mut entries = Vec::with_capacity(self.0.len());
        for OfKind { id } in self.0 {
            entries.extend(match id {
                Kind::Cache => list.next_element::<Cache>()?.map(|_| Entry::Cache),
                Kind::Rollup => list.next_element()?.map(Entry::Rollup),
                Kind::Events => list.next_element()?.map(Entry::Events),
            });
        }
        // So that the list's end is read.
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(entries)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache {
    #[serde(rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rollup {
    #[serde(rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
    pub(super) counter_cardinality: Option<Cardinality>,
    #[serde(default)]
    pub(super) config: RollupConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Events {
    #[serde(rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "scope")]
    _scope: IgnoredAny,
    #[serde(default, rename = "physical_storage")]
    _storage: Storage,
    #[serde(default)]
    pub(super) config: EventsConfig,
    #[serde(default, rename = "lifecycleConfigs")]
    pub(super) lifecycles: Lifecycles,
}

/// Where it is stored. Ignored: every storage is in one Redis.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Storage {
    #[serde(rename = "type")]
    _type: IgnoredAny,
    #[serde(rename = "cluster")]
    _cluster: IgnoredAny,
    #[serde(rename = "dataset")]
    _dataset: IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RollupConfig {
    pub(super) counter_type: Option<CounterType>,
    pub(super) ttl: Option<Seconds>,
    pub(super) eventual_counter_config: Eventual,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Eventual {
    pub(super) internal_config: Internal,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Internal {
    pub(super) queue_config: Queue,
    pub(super) rollup_batch_count: Option<Number<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Queue {
    pub(super) num_queues: Option<Number<u16>>,
    pub(super) coalesce_ms: Option<Number<u64>>,
    pub(super) capacity_bytes: Option<Number<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsConfig {
    pub(super) time_partition: TimePartition,
    pub(super) accept_limit: Option<Seconds>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TimePartition {
    pub(super) buckets_per_id: Option<Number<u16>>,
    pub(super) seconds_per_bucket: Option<Number<u64>>,
    pub(super) seconds_per_slice: Option<Number<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Lifecycles {
    #[serde(rename = "lifecycleConfig")]
    pub(super) all: Vec<Lifecycle>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lifecycle {
    #[serde(rename = "type")]
    _type: LifecycleType,
    #[serde(default)]
    pub(super) config: Retention,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LifecycleType {
    Retention,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retention {
    pub(super) close_after: Option<Seconds>,
    pub(super) delete_after: Option<Seconds>,
}

/// `600` or `"600"`: the article has both.
#[derive(Clone, Copy)]
pub(super) struct Number<T>(pub(super) T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfNumber<T>(PhantomData<T>);

        impl<T: TryFrom<u64>> Visitor<'_> for OfNumber<T> {
            type Value = Number<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Number<T>, E> {
                T::try_from(number).map(Number).map_err(|_| E::custom(format!("{number} is too large")))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Number<T>, E> {
                let number = u64::try_from(number).map_err(|_| E::custom(format!("{number} is below 0")))?;
                self.visit_u64(number)
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Number<T>, E> {
                Err(E::custom(format!("{number} is not a whole number from 0 that fits 64 bits")))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number<T>, E> {
                self.visit_u64(text.parse().map_err(|_| E::custom(format!("'{text}' is not a number")))?)
            }
        }

        deserializer.deserialize_any(OfNumber(PhantomData))
    }
}

/// `"5s"`, in ms.
#[derive(Clone, Copy)]
pub(super) struct Seconds(pub(super) u64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seconds = text.strip_suffix('s').and_then(|number| number.parse::<u64>().ok());
        let ms = seconds.map(|seconds| seconds.checked_mul(1_000));
        match ms {
            Some(Some(ms)) => Ok(Seconds(ms)),
            Some(None) => Err(serde::de::Error::custom(format!("'{text}' is too long"))),
            None => Err(serde::de::Error::custom(format!("'{text}' is not a duration such as 5s"))),
        }
    }
}
