//! What a namespace is told (N1), and where its parts are.

mod seed;

use crate::log::WINDOW_MS;
use crate::names::{CounterName, Token};
use crate::refusal::Refusal;
use crate::rollup::COUNT_SOFT_MAX;
use serde::{Deserialize, Serialize};
use tallystone_lua::counter::ACCEPT_MS_MAX;
use utoipa::ToSchema;
use xxhash_rust::xxh3::xxh3_128;

/// Shards of the event log and of the checkpoints. As many as the events of one counter can be spread over, and few
/// enough that the calls of a millisecond fill a script call to each.
pub const SHARDS: u16 = 8;
/// How far ahead of the store's clock an event's time may be: the skew of a client's clock.
pub const FUTURE_LIMIT_MS: u64 = 1_000;
/// How much longer than the accept limit a rollup stays behind (N7): the clocks of two shards may differ by so much.
pub const SKEW_MS: u64 = 100;

/// The shortest time between two rollups of a counter in circulation, whatever `coalesce_ms` is.
const CIRCULATION_MS_MIN: u64 = 1_000;

/// What its counters promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CounterType {
    /// Fast and cheap, not idempotent (N4).
    BestEffort,
    /// Exact, behind by the accept limit and a little more (N5).
    #[default]
    Eventual,
    /// The same, and read with what is pending (N11).
    Accurate,
}

/// How many counters there are, roughly (N10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Cardinality {
    /// Few: all of them stay in circulation.
    Low,
    /// As `High`.
    Medium,
    /// Many: each is rolled up only while it has something new.
    #[default]
    High,
}

/// The parameters of a namespace. The names are the seed's, with their units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceConfig {
    /// What its counters promise.
    pub counter_type: CounterType,
    /// How many there are.
    pub cardinality: Cardinality,
    /// BEST_EFFORT: how long after its last add a counter is kept; 0: for ever.
    pub ttl_ms: u64,
    /// All adds of one counter within this time are one rollup (N8).
    pub coalesce_ms: u64,
    /// Counters that one worker rolls up at once (N10).
    pub rollup_batch_count: u32,
    /// Shards of the rollup queue.
    pub num_queues: u16,
    /// What may wait in one of them.
    pub capacity_bytes: u64,
    /// Parts of the event log over which the events of one counter are spread (N5).
    pub buckets_per_id: u16,
    /// How much time one hash of records holds.
    pub seconds_per_bucket: u64,
    /// How much time is dropped at once.
    pub seconds_per_slice: u64,
    /// How far behind the store's clock an event's time may be (N6).
    pub accept_limit_ms: u64,
    /// After this an event is no longer looked for.
    pub close_after_ms: u64,
    /// After this it may be dropped.
    pub delete_after_ms: u64,
}

impl Default for NamespaceConfig {
    /// The seed's example, but for the cardinality.
    fn default() -> Self {
        NamespaceConfig {
            counter_type: CounterType::Eventual,
            cardinality: Cardinality::High,
            ttl_ms: 0,
            coalesce_ms: 10_000,
            rollup_batch_count: 32,
            num_queues: 8,
            capacity_bytes: 16 * 1024 * 1024,
            buckets_per_id: 4,
            seconds_per_bucket: 600,
            seconds_per_slice: 86_400,
            accept_limit_ms: 5_000,
            close_after_ms: 518_400_000,
            delete_after_ms: 604_800_000,
        }
    }
}

impl NamespaceConfig {
    /// Checks bounds and the relations between them.
    pub fn check(&self) -> Result<(), Refusal> {
        const YEAR_MS: u64 = 366 * 86_400_000;
        let within = |field, value: u64, min: u64, max: u64| match value {
            value if (min..=max).contains(&value) => Ok(()),
            value => Err(Refusal::invalid(field, format!("is {value}; from {min} to {max}"))),
        };
        within("ttl_ms", self.ttl_ms, 0, YEAR_MS)?;
        within("coalesce_ms", self.coalesce_ms, 0, 3_600_000)?;
        within("rollup_batch_count", self.rollup_batch_count.into(), 1, 1_000)?;
        within("num_queues", self.num_queues.into(), 1, 1_024)?;
        within("capacity_bytes", self.capacity_bytes, 1_024, 1 << 40)?;
        within("buckets_per_id", self.buckets_per_id.into(), 1, SHARDS.into())?;
        within("seconds_per_bucket", self.seconds_per_bucket, 1, 86_400)?;
        within("seconds_per_slice", self.seconds_per_slice, 60, 31 * 86_400)?;
        within("accept_limit_ms", self.accept_limit_ms, 100, ACCEPT_MS_MAX)?;
        within("close_after_ms", self.close_after_ms, 60_000, YEAR_MS)?;
        within("delete_after_ms", self.delete_after_ms, 60_000, YEAR_MS)?;
        if !self.seconds_per_slice.is_multiple_of(self.seconds_per_bucket) {
            let why = format!("is {}; a multiple of seconds_per_bucket", self.seconds_per_slice);
            return Err(Refusal::invalid("seconds_per_slice", why));
        }
        if self.close_after_ms <= self.accept_limit_ms || self.delete_after_ms <= self.close_after_ms {
            let why = "accept_limit < close_after < delete_after must hold";
            return Err(Refusal::invalid("close_after_ms", why));
        }
        Ok(())
    }

    /// Whether a namespace that is like this may become like that: where events are must stay where they are looked for.
    pub fn check_change(&self, to: &NamespaceConfig) -> Result<(), Refusal> {
        if (self.counter_type == CounterType::BestEffort) != (to.counter_type == CounterType::BestEffort) {
            let why = "BEST_EFFORT counters have no events: make another namespace";
            return Err(Refusal::invalid("counter_type", why));
        }
        let fixed = [
            ("buckets_per_id", u64::from(self.buckets_per_id), u64::from(to.buckets_per_id)),
            ("seconds_per_bucket", self.seconds_per_bucket, to.seconds_per_bucket),
        ];
        match fixed.into_iter().find(|(_, before, after)| before != after) {
            Some((field, before, _)) => Err(Refusal::invalid(field, format!("is {before} for ever"))),
            None => Ok(()),
        }
    }

    /// What a control plane says (seed 000, "Control plane"), as it stands: JSON with comments, with or without the braces
    /// around it. What it does not say is as by default; what it says that has no meaning here (clusters, scopes) is not
    /// looked at, and any other key is refused.
    pub fn of_persistence_configuration(text: &str) -> Result<NamespaceConfig, Refusal> {
        seed::parse(text)
    }

    /// How far behind the store's clock a rollup stays (N7).
    pub(crate) fn lag_ms(&self) -> u64 {
        self.accept_limit_ms + SKEW_MS
    }

    /// How long after its first window is over a rollup is due: all that is coalesced has come, and no more can.
    pub(crate) fn due_after_ms(&self) -> u64 {
        self.coalesce_ms + self.lag_ms()
    }

    /// How long after its last rollup a counter in circulation falls due again; 0: counters of this namespace leave
    /// circulation when nothing of them is pending (N10).
    pub(crate) fn circulation_ms(&self) -> u64 {
        match self.cardinality {
            Cardinality::Low => self.coalesce_ms.max(CIRCULATION_MS_MIN),
            Cardinality::Medium | Cardinality::High => 0,
        }
    }

    /// What the sizes of the pending deltas of one counter may come to in one shard: so any of them, of all its shards,
    /// fit on top of a count below its soft limit.
    pub fn pending_max(&self) -> i64 {
        (COUNT_SOFT_MAX - 1) / i64::from(self.buckets_per_id)
    }
}

/// Where a counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    hash: u128,
}

impl Placement {
    pub(crate) fn of(counter: &CounterName) -> Placement {
        Placement { hash: xxh3_128(counter.as_str().as_bytes()) }
    }

    /// The shard that has its checkpoint.
    pub(crate) fn home(self) -> u16 {
        (self.hash % u128::from(SHARDS)) as u16
    }

    /// What stands for its name in a record: two counters share it once in 2^96 pairs.
    pub(crate) fn id(self) -> [u8; 12] {
        let mut id = [0; 12];
        id.copy_from_slice(&self.hash.to_be_bytes()[..12]);
        id
    }

    /// The shards of the log that can have its events, each once.
    pub(crate) fn shards(self, config: &NamespaceConfig) -> impl Iterator<Item = u16> {
        (0..config.buckets_per_id).map(move |bucket| (self.home() + bucket) % SHARDS)
    }

    /// The shard of one event, and the number that says in which slot its record is.
    pub(crate) fn of_event(self, token: &Token, config: &NamespaceConfig) -> (u16, u32) {
        let hash = xxh3_128(token.as_str().as_bytes()) ^ self.hash.rotate_left(32);
        let bucket = ((hash >> 64) % u128::from(config.buckets_per_id)) as u16;
        ((self.home() + bucket) % SHARDS, hash as u32)
    }
}

const _: () = assert!(FUTURE_LIMIT_MS >= WINDOW_MS, "slots are laid out anew for windows that begin after it");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_the_default_is_good_and_absurd_values_are_named() {
        assert_eq!(NamespaceConfig::default().check(), Ok(()));
        let absurd = [
            ("buckets_per_id", NamespaceConfig { buckets_per_id: 0, ..Default::default() }),
            ("buckets_per_id", NamespaceConfig { buckets_per_id: 9, ..Default::default() }),
            ("accept_limit_ms", NamespaceConfig { accept_limit_ms: 0, ..Default::default() }),
            ("seconds_per_slice", NamespaceConfig { seconds_per_slice: 1_000, ..Default::default() }),
            ("close_after_ms", NamespaceConfig { close_after_ms: 604_800_000, ..Default::default() }),
        ];
        for (field, config) in absurd {
            assert!(matches!(config.check(), Err(Refusal::Invalid { field: named, .. }) if named == field), "{field}");
        }
    }

    #[test]
    fn n5_the_events_of_one_counter_are_spread_over_as_many_shards_as_it_has_buckets() {
        let counter = CounterName::parse("c").unwrap();
        for buckets_per_id in [1, 3, 8] {
            let config = NamespaceConfig { buckets_per_id, ..Default::default() };
            let placement = Placement::of(&counter);
            let all: std::collections::BTreeSet<u16> = placement.shards(&config).collect();
            let tokens = (0..200).map(|n| Token::parse(n.to_string()).unwrap());
            let met: std::collections::BTreeSet<u16> =
                tokens.map(|token| placement.of_event(&token, &config).0).collect();
            assert_eq!(all.len(), usize::from(buckets_per_id));
            assert_eq!(met, all);
        }
    }
}
