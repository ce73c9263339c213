//! The parameters of a namespace (N1), their bounds and the relations between them.

use super::threshold::Threshold;
use crate::log::{Bounds, WINDOW_MS};
use crate::names::RegionName;
use crate::refusal::Refusal;
use crate::rollup::COUNT_SOFT_MAX;
use serde::{Deserialize, Serialize};
use tallystone_lua::counter::ACCEPT_MS_MAX;
use utoipa::ToSchema;

/// The number of shards of the event log and of the checkpoints. The events of one counter can be spread over all of them,
/// and they are few enough that the adds of a millisecond fill a script call to each.
pub const SHARDS: u16 = 8;
/// How far ahead of the store's clock an event's time may be, to allow for the skew of a client's clock.
pub const FUTURE_LIMIT_MS: u64 = 1_000;
/// How much longer than the accept limit a rollup stays behind (N7): it allows for shards whose clocks differ.
pub const SKEW_MS: u64 = 100;

/// The shortest time between two rollups of a counter in circulation, whatever `coalesce_ms` is.
const CIRCULATION_MS_MIN: u64 = 1_000;

/// A counter of a MEDIUM namespace stays in circulation until it has had no event for this long (N10).
pub const MEDIUM_IDLE_MS: u64 = 600_000;

/// The shortest `expire_after_ms`: servers search for idle counters every few minutes.
const EXPIRE_MS_MIN: u64 = 600_000;

/// The maximum number of regions of a namespace: a global count reads a record of each.
pub const REGIONS_MAX: usize = 16;

/// What a namespace promises for its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CounterType {
    /// Fast and cheap, not idempotent: a retry may count twice (N4).
    BestEffort,
    /// Exact; a count is behind by the accept limit, `coalesce_ms` and about a second (N5).
    #[default]
    Eventual,
    /// Exact; a read adds the pending events, so it includes every acknowledged add (N11).
    Accurate,
}

/// Roughly how many counters a namespace has, which decides which of them stay in circulation (N10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Cardinality {
    /// Some hundreds: every counter is rolled up again and again, even without adds.
    Low,
    /// Thousands: as `Low`, until a counter has had no event for ten minutes ([`MEDIUM_IDLE_MS`]); then as `High`.
    Medium,
    /// Many: a counter is rolled up only while it has new events.
    #[default]
    High,
}

/// The parameters of a namespace. The names are the seed's, with their units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceConfig {
    /// What its counts promise.
    pub counter_type: CounterType,
    /// Roughly how many counters it has.
    pub cardinality: Cardinality,
    /// BEST_EFFORT only: how long a counter is kept after its last add; 0: for ever.
    pub ttl_ms: u64,
    /// A rollup waits this long, so that all adds of one counter within this time are one rollup (N8).
    pub coalesce_ms: u64,
    /// How many counters a worker rolls up in one batch (N10).
    pub rollup_batch_count: u32,
    /// The number of rollup queues.
    pub num_queues: u16,
    /// The size of each rollup queue in bytes; a job counts as 512.
    pub capacity_bytes: u64,
    /// The number of shards over which the events of one counter are spread (N5).
    pub buckets_per_id: u16,
    /// How much time one bucket of a shard covers; fixed at creation.
    pub seconds_per_bucket: u64,
    /// How much time retention deletes at once; a multiple of `seconds_per_bucket`.
    pub seconds_per_slice: u64,
    /// How far behind the store's clock an event's time may be (N6).
    pub accept_limit_ms: u64,
    /// How long after an event its token is known; a later retry is refused.
    pub close_after_ms: u64,
    /// How long events are kept; older ones are deleted once they are rolled up.
    pub delete_after_ms: u64,
    /// EVENTUAL only: a counter without an event for this long is deleted (N14); 0: never.
    // A server that does not know it reads a namespace without it.
    #[serde(skip_serializing_if = "is_zero")]
    pub expire_after_ms: u64,
    /// Not BEST_EFFORT: the counter set to which rollups publish the counts (W6); `None`: they publish nothing.
    // As above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_to: Option<PublishedTo>,
    /// Not BEST_EFFORT: events leave Redis for the archive once they are rolled up (N15). It stays so.
    // As above.
    #[serde(skip_serializing_if = "is_false")]
    pub archived: bool,
    /// Not BEST_EFFORT: when a rollup or a recount passes one of these counts, the feed of crossings has it (N16).
    // As above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Threshold>,
    /// Not BEST_EFFORT: the regions over which the counters are spread, this one among them (N12); none: the namespace has no
    /// regions.
    // As above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub regions: Vec<RegionName>,
}

/// A field of a counter set (W6).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedTo {
    /// The key of the counter set.
    pub key: String,
    /// The field of the counts.
    pub field: String,
}

impl PublishedTo {
    const KEY_BYTES_MAX: usize = 512;
    /// The module allows 64 bytes, which include the suffix of the time field.
    const FIELD_BYTES_MAX: usize = 55;

    /// The field of the times to which the counts are exact.
    pub fn time_field(&self) -> String {
        format!("{}.exact_to", self.field)
    }

    fn check(&self) -> Result<(), Refusal> {
        let (key_max, field_max) = (PublishedTo::KEY_BYTES_MAX, PublishedTo::FIELD_BYTES_MAX);
        if !(1..=key_max).contains(&self.key.len()) {
            let why = format!("has {} bytes; must have 1 to {key_max}", self.key.len());
            return Err(Refusal::invalid("published_to.key", why));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=field_max).contains(&self.field.len()) || !self.field.bytes().all(is_plain) {
            let why = format!("must have 1 to {field_max} characters of A-Z a-z 0-9 . _ -");
            return Err(Refusal::invalid("published_to.field", why));
        }
        Ok(())
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for NamespaceConfig {
    /// The example of Netflix's article, except for the cardinality, and for larger batches: a rollup costs half as much in
    /// them (docs/decisions/0048).
    fn default() -> Self {
        NamespaceConfig {
            counter_type: CounterType::Eventual,
            cardinality: Cardinality::High,
            ttl_ms: 0,
            coalesce_ms: 10_000,
            rollup_batch_count: 128,
            num_queues: 8,
            capacity_bytes: 16 * 1024 * 1024,
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
        }
    }
}

impl NamespaceConfig {
    /// Checks bounds and the relations between them.
    pub fn check(&self) -> Result<(), Refusal> {
        const YEAR_MS: u64 = 366 * 86_400_000;
        let within = |field, value: u64, min: u64, max: u64| match value {
            value if (min..=max).contains(&value) => Ok(()),
            value => Err(Refusal::invalid(field, format!("is {value}; must be from {min} to {max}"))),
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
        if self.expire_after_ms > 0 {
            within("expire_after_ms", self.expire_after_ms, EXPIRE_MS_MIN, YEAR_MS)?;
            // One script decides about an ACCURATE counter, so it must see all events (docs/decisions/0187).
            if self.counter_type != CounterType::Eventual && !self.has_exact_home() {
                let why = "must be 0: only counters that are EVENTUAL, or ACCURATE with buckets_per_id 1, expire";
                return Err(Refusal::invalid("expire_after_ms", why));
            }
        }
        if let Some(published_to) = &self.published_to {
            published_to.check()?;
            if self.counter_type == CounterType::BestEffort {
                return Err(Refusal::invalid("published_to", "cannot be set: BEST_EFFORT counters have no rollups"));
            }
        }
        if self.archived && self.counter_type == CounterType::BestEffort {
            return Err(Refusal::invalid("archived", "must be false: BEST_EFFORT counters have no events"));
        }
        Threshold::check_all(&self.thresholds)?;
        if !self.thresholds.is_empty() && self.counter_type == CounterType::BestEffort {
            return Err(Refusal::invalid("thresholds", "cannot be set: BEST_EFFORT counters have no rollups"));
        }
        self.check_regions()?;
        if !self.seconds_per_slice.is_multiple_of(self.seconds_per_bucket) {
            let why = format!("is {}; must be a multiple of seconds_per_bucket", self.seconds_per_slice);
            return Err(Refusal::invalid("seconds_per_slice", why));
        }
        if self.close_after_ms <= self.accept_limit_ms || self.delete_after_ms <= self.close_after_ms {
            let why = "must be above accept_limit_ms and below delete_after_ms";
            return Err(Refusal::invalid("close_after_ms", why));
        }
        Ok(())
    }

    fn check_regions(&self) -> Result<(), Refusal> {
        let regions = &self.regions;
        if regions.is_empty() {
            return Ok(());
        }
        if !(2..=REGIONS_MAX).contains(&regions.len()) {
            let why = format!("has {}; must have 2 to {REGIONS_MAX}, or none", regions.len());
            return Err(Refusal::invalid("regions", why));
        }
        if let Some(twice) = (1..regions.len()).find(|index| regions[..*index].contains(&regions[*index])) {
            return Err(Refusal::invalid("regions", format!("has '{}' twice", regions[twice])));
        }
        if self.counter_type == CounterType::BestEffort {
            return Err(Refusal::invalid("regions", "cannot be set: BEST_EFFORT counters have no rollups"));
        }
        if self.expire_after_ms > 0 {
            // A counter that is idle here would lose the part of this region, though others add to it.
            return Err(Refusal::invalid("expire_after_ms", "must be 0 in a namespace with regions"));
        }
        Ok(())
    }

    /// Refuses a change that would move events away from where they are looked up.
    pub fn check_change(&self, to: &NamespaceConfig) -> Result<(), Refusal> {
        if (self.counter_type == CounterType::BestEffort) != (to.counter_type == CounterType::BestEffort) {
            let why = "cannot change to or from BEST_EFFORT; create another namespace";
            return Err(Refusal::invalid("counter_type", why));
        }
        if self.archived && !to.archived {
            let why = "is true and cannot change: events are in the archive only";
            return Err(Refusal::invalid("archived", why));
        }
        if self.archived && self.seconds_per_slice != to.seconds_per_slice {
            let why = format!("is {} and cannot change: the archive has slices", self.seconds_per_slice);
            return Err(Refusal::invalid("seconds_per_slice", why));
        }
        let fixed = [
            ("buckets_per_id", u64::from(self.buckets_per_id), u64::from(to.buckets_per_id)),
            ("seconds_per_bucket", self.seconds_per_bucket, to.seconds_per_bucket),
        ];
        match fixed.into_iter().find(|(_, before, after)| before != after) {
            Some((field, before, _)) => Err(Refusal::invalid(field, format!("is {before} and cannot change"))),
            None => Ok(()),
        }
    }

    /// Whether the home shard of each counter always knows its exact count.
    fn has_exact_home(&self) -> bool {
        self.counter_type == CounterType::Accurate && self.buckets_per_id == 1
    }

    /// Refuses conditional adds where one script call does not know the count (N18). An EVENTUAL counter may expire while the
    /// call runs.
    pub(crate) fn check_bounds(&self, bounds: &Bounds) -> Result<(), Refusal> {
        if bounds.are_none() || self.has_exact_home() {
            return Ok(());
        }
        let field = if bounds.min.is_some() { "min" } else { "max" };
        Err(Refusal::invalid(field, "can be set only in an ACCURATE namespace with buckets_per_id 1"))
    }

    /// The configuration of a namespace of which nothing was said about the archive.
    pub(crate) fn archived_by_default(self, archived: bool) -> NamespaceConfig {
        NamespaceConfig { archived: archived && self.counter_type != CounterType::BestEffort, ..self }
    }

    /// How far behind the store's clock a rollup stays, in ms (N7).
    pub(crate) fn lag_ms(&self) -> u64 {
        self.accept_limit_ms + SKEW_MS
    }

    /// How long after the end of a counter's first window its rollup falls due, in ms: all adds to coalesce have come, and
    /// the window can be sealed.
    pub fn due_after_ms(&self) -> u64 {
        self.coalesce_ms + self.lag_ms()
    }

    /// Since when a counter waits whose count is exact to this time, if its rollup falls due as soon as it can seal one more
    /// window (Unix ms).
    pub(crate) fn waits_since_ms(&self, exact_to_ms: u64) -> i64 {
        (exact_to_ms + WINDOW_MS + self.lag_ms()) as i64 - self.due_after_ms() as i64
    }

    /// How long after its last rollup a counter falls due again though nothing of it is pending; 0: it leaves circulation
    /// (N10). `idle_ms`: how long it has had no event.
    pub(crate) fn circulation_ms(&self, idle_ms: u64) -> u64 {
        let stays = match self.cardinality {
            Cardinality::Low => true,
            Cardinality::Medium => idle_ms < MEDIUM_IDLE_MS,
            Cardinality::High => false,
        };
        if stays { self.coalesce_ms.max(CIRCULATION_MS_MIN) } else { 0 }
    }

    /// The bound on the sum of the sizes of one counter's pending deltas in one shard. With it, any part of the pending
    /// deltas of all its shards fits a count below [`COUNT_SOFT_MAX`].
    pub fn pending_max(&self) -> i64 {
        (COUNT_SOFT_MAX - 1) / i64::from(self.buckets_per_id)
    }
}

const _: () = assert!(
    FUTURE_LIMIT_MS >= WINDOW_MS,
    "a new layout of slots begins after the latest window that may have an event"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Configurations that name no counter set to publish to, and the field at fault.
    fn unpublishable() -> Vec<(&'static str, NamespaceConfig)> {
        let to = |key: &str, field: &str| {
            let published_to = Some(PublishedTo { key: key.to_owned(), field: field.to_owned() });
            NamespaceConfig { published_to, ..Default::default() }
        };
        assert_eq!(to("objects", &"f".repeat(55)).check(), Ok(()));
        let best_effort = NamespaceConfig { counter_type: CounterType::BestEffort, ..to("objects", "likes") };
        vec![
            ("published_to.key", to("", "likes")),
            ("published_to.key", to(&"k".repeat(513), "likes")),
            ("published_to.field", to("objects", "")),
            ("published_to.field", to("objects", "li kes")),
            ("published_to.field", to("objects", &"f".repeat(56))),
            ("published_to", best_effort),
        ]
    }

    #[test]
    fn n16_thresholds_are_few_distinct_and_within_the_range_of_counts() {
        let of = |thresholds: &[(&str, i64)]| {
            let threshold = |(prefix, count): &(&str, i64)| Threshold { prefix: (*prefix).to_owned(), count: *count };
            NamespaceConfig { thresholds: thresholds.iter().map(threshold).collect(), ..Default::default() }
        };
        let field = |config: &NamespaceConfig| match config.check() {
            Err(Refusal::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let many: Vec<(&str, i64)> = (0..33).map(|count| ("", count)).collect();
        for good in [&many[..32], &[("", 5), ("a", 5)], &[("", COUNT_SOFT_MAX), ("", -COUNT_SOFT_MAX)]] {
            assert_eq!(of(good).check(), Ok(()));
            let json = serde_json::to_string(&of(good)).unwrap();
            assert_eq!(serde_json::from_str::<NamespaceConfig>(&json).unwrap(), of(good));
        }
        assert_eq!(field(&of(&many)), "thresholds");
        assert_eq!(field(&of(&[("a", 5), ("", 1), ("a", 5)])), "thresholds");
        assert_eq!(field(&of(&[("", COUNT_SOFT_MAX + 1)])), "thresholds.count");
        assert_eq!(field(&of(&[("", i64::MIN)])), "thresholds.count");
        assert_eq!(field(&of(&[("\n", 1)])), "thresholds.prefix");
        assert_eq!(field(&of(&[(&"p".repeat(129), 1)])), "thresholds.prefix");
        let best_effort = NamespaceConfig { counter_type: CounterType::BestEffort, ..of(&[("", 5)]) };
        assert_eq!(field(&best_effort), "thresholds");
        let none = serde_json::to_value(NamespaceConfig::default()).unwrap();
        assert!(none.get("thresholds").is_none(), "earlier servers read it");
    }

    #[test]
    fn n1_the_default_is_good_and_absurd_values_are_named() {
        let of_type =
            |counter_type| NamespaceConfig { counter_type, expire_after_ms: EXPIRE_MS_MIN, ..Default::default() };
        assert_eq!(NamespaceConfig::default().check(), Ok(()));
        assert_eq!(of_type(CounterType::Eventual).check(), Ok(()));
        let exact_home = NamespaceConfig { buckets_per_id: 1, ..of_type(CounterType::Accurate) };
        assert_eq!(exact_home.check(), Ok(()));
        let absurd = [
            ("buckets_per_id", NamespaceConfig { buckets_per_id: 0, ..Default::default() }),
            ("buckets_per_id", NamespaceConfig { buckets_per_id: 9, ..Default::default() }),
            ("accept_limit_ms", NamespaceConfig { accept_limit_ms: 0, ..Default::default() }),
            ("seconds_per_slice", NamespaceConfig { seconds_per_slice: 1_000, ..Default::default() }),
            ("close_after_ms", NamespaceConfig { close_after_ms: 604_800_000, ..Default::default() }),
            ("expire_after_ms", NamespaceConfig { expire_after_ms: EXPIRE_MS_MIN - 1, ..Default::default() }),
            ("expire_after_ms", NamespaceConfig { expire_after_ms: u64::MAX, ..Default::default() }),
            ("expire_after_ms", of_type(CounterType::Accurate)),
            ("expire_after_ms", of_type(CounterType::BestEffort)),
            (
                "archived",
                NamespaceConfig { archived: true, counter_type: CounterType::BestEffort, ..Default::default() },
            ),
        ];
        for (field, config) in absurd.into_iter().chain(unpublishable()) {
            assert!(matches!(config.check(), Err(Refusal::Invalid { field: named, .. }) if named == field), "{field}");
        }
    }
}
