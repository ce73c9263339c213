//! What the random programs are made of: configurations, events, batches of them.

use super::*;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use tallystone_counters::namespace::{Cardinality, CounterType, Threshold};
use tallystone_counters::rollup::COUNT_SOFT_MAX;

pub(super) const NAMES: [&str; 5] = ["a", "b", "route/EWR-IAH", "ü", "hot"];
/// From here on a delta is counted in halves.
const WIDE: i64 = 1 << 51;

/// What kind of deltas a program adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deltas {
    /// Small ones, and now and then a wide one.
    Mixed,
    /// At both sides of what a Lua number is exact to.
    AroundWide,
    /// As large as a counter can hold, or larger: some are refused.
    Extreme,
}

pub(super) fn one<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    *of.choose(random).expect("some")
}

/// A namespace as it is made.
pub(super) fn config(random: &mut StdRng) -> NamespaceConfig {
    let made = NamespaceConfig {
        counter_type: one(random, &[CounterType::Eventual, CounterType::Accurate]),
        buckets_per_id: if random.random() { 1 } else { random.random_range(1..=8) },
        seconds_per_bucket: one(random, &[1, 7, 600]),
        seconds_per_slice: 600 * 7,
        close_after_ms: one(random, &[60_000, 1_200_000]),
        archived: random.random(),
        ..NamespaceConfig::default()
    };
    changed(random, &made)
}

/// What may be another from one revision to the next.
pub(super) fn changed(random: &mut StdRng, config: &NamespaceConfig) -> NamespaceConfig {
    NamespaceConfig {
        accept_limit_ms: one(random, &[500, 5_000, 12_345]),
        coalesce_ms: one(random, &[0, 1_000, 10_000]),
        cardinality: one(random, &[Cardinality::Low, Cardinality::Medium, Cardinality::High]),
        expire_after_ms: match (config.counter_type, config.buckets_per_id) {
            (CounterType::Eventual, _) | (CounterType::Accurate, 1) => one(random, &[0, 600_000]),
            _ => 0,
        },
        thresholds: (0..random.random_range(0..5)).map(|number| threshold(random, number)).collect(),
        ..config.clone()
    }
}

/// All of them differ by their numbers.
fn threshold(random: &mut StdRng, number: i64) -> Threshold {
    let count = one(random, &[-WIDE, -1_000, -10, 0, 20, 5_000, WIDE, COUNT_SOFT_MAX - 10]);
    Threshold { prefix: one(random, &["", "a", "hot"]).to_owned(), count: count + number }
}

pub(super) fn any_counter(random: &mut StdRng) -> CounterName {
    counter(one(random, &NAMES))
}

/// Some counters, each once, in any order.
pub(super) fn some_counters(random: &mut StdRng) -> Vec<CounterName> {
    let count = random.random_range(1..=NAMES.len());
    let mut names: Vec<CounterName> = NAMES.choose_multiple(random, count).copied().map(counter).collect();
    names.shuffle(random);
    names
}

/// The events of one call.
pub(super) fn batch(
    random: &mut StdRng,
    ns: &TestNamespace,
    deltas: Deltas,
    sent: &[(NewEvent, Option<u64>)],
) -> Vec<NewEvent> {
    let count = one(random, &[1, 2, 5, 40, 400]);
    let mut events: Vec<NewEvent> = Vec::with_capacity(count);
    for _ in 0..count {
        let event = match events.choose(random) {
            Some(again) if random.random_ratio(1, 10) => again.clone(),
            _ => any_event(random, ns, deltas, sent),
        };
        events.push(event);
    }
    if count == 400 {
        // One counter, one moment: the layout of slots changes.
        let is_stamped: bool = random.random();
        for event in &mut events {
            event.counter = counter("hot");
            event.time_ms = (!is_stamped).then(|| ns.now_ms());
        }
    }
    events
}

fn any_event(random: &mut StdRng, ns: &TestNamespace, deltas: Deltas, sent: &[(NewEvent, Option<u64>)]) -> NewEvent {
    if let Some((event, happened_ms)) = sent.iter().choose(random)
        && random.random_ratio(1, 3)
    {
        // A caller that got the time of its event may send that time from then on.
        let mut again = NewEvent { time_ms: event.time_ms.or(*happened_ms), ..event.clone() };
        if random.random_ratio(1, 8) {
            again.change = Change::Add(random.random_range(-3..=3));
        }
        if random.random_ratio(1, 8) {
            again.labels = labels(random);
        }
        return again;
    }
    let change = match random.random_range(0..12) {
        0 => Change::Clear,
        _ => Change::Add(delta(random, ns, deltas)),
    };
    let (counter, is_stamped) = (any_counter(random), random.random_ratio(1, 4));
    // One that happens when it is counted may be tried again after the others of its call: its token is its own.
    let token = any_token(random, if is_stamped { &[36, 64] } else { &[1, 3, 36, 64] });
    let bounds = bounds(random, ns, change);
    let labels = labels(random);
    NewEvent { counter, token, time_ms: (!is_stamped).then(|| time_ms(random, ns)), change, bounds, labels }
}

/// Of every other event none. A clear may have some, too, which the log leaves out.
fn labels(random: &mut StdRng) -> Labels {
    if random.random() {
        return Labels::default();
    }
    let any = |random: &mut StdRng| match random.random_range(0..5) {
        0 => String::new(),
        1 => one(random, &["eu", "0198f6a2-7d3c-7b1e-9f20-5a6b7c8d9e0f", "77012", "é", "A"]).to_owned(),
        length => (0..[3, 9, 64][length - 2]).map(|_| random.random_range(' '..='~')).collect(),
    };
    Labels::parse(any(random), any(random)).expect("labels")
}

/// Many where the namespace allows them, and elsewhere a few, which are refused.
fn bounds(random: &mut StdRng, ns: &TestNamespace, change: Change) -> Bounds {
    let allows = ns.config.counter_type == CounterType::Accurate && ns.config.buckets_per_id == 1;
    if change == Change::Clear || !random.random_ratio(1, if allows { 2 } else { 40 }) {
        return Bounds::default();
    }
    let bound = |random: &mut StdRng| match random.random_range(0..8) {
        0 => None,
        1 => Some(one(random, &[i64::MIN, -COUNT_SOFT_MAX, -(1 << 53), 1 << 53, COUNT_SOFT_MAX, i64::MAX])),
        _ => Some(random.random_range(-900..=900)),
    };
    Bounds { min: bound(random), max: bound(random) }
}

fn time_ms(random: &mut StdRng, ns: &TestNamespace) -> u64 {
    let (now_ms, limit_ms) = (ns.now_ms(), ns.config.accept_limit_ms);
    match random.random_range(0..6) {
        0 => now_ms,
        1 => now_ms - limit_ms,
        2 => random.random_range(now_ms - limit_ms - 3..=now_ms - limit_ms + 3),
        3 => now_ms + random.random_range(998..=1_002),
        _ => random.random_range(now_ms - limit_ms..=now_ms),
    }
}

fn delta(random: &mut StdRng, ns: &TestNamespace, deltas: Deltas) -> i64 {
    let most = ns.config.pending_max();
    let small = random.random_range(-300..=300);
    let size = match deltas {
        Deltas::Mixed if random.random_ratio(1, 12) => return random.random_range(-(1 << 55)..=1 << 55),
        Deltas::Mixed => return small,
        Deltas::AroundWide => one(random, &[WIDE - 1, WIDE - 3, WIDE, WIDE + 1, 2 * WIDE + 1, 12_345, 1]),
        Deltas::Extreme => one(random, &[most, most - 1, most / 2, 1 << 55, 300, 1, most + 1, i64::MAX, i64::MIN + 1]),
    };
    match random.random_range(0..24) {
        0 if deltas == Deltas::Extreme => i64::MIN,
        1..8 => -size,
        _ => size,
    }
}

pub(super) fn any_token(random: &mut StdRng, lengths: &[usize]) -> Token {
    let length = one(random, lengths);
    token(&(0..length).map(|_| random.random_range('a'..='z')).collect::<String>())
}
