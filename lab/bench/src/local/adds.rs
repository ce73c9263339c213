//! Adds by handle, with one thread and with two. Nothing is pushed meanwhile.

use super::plan::LocalPlan;
use crate::report::{Goal, Reference, Row};
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use dashmap::DashMap;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tallystone_client::CounterClient;
use tallystone_client::local::{Handle, LocalCounters, LocalOptions};
use tempfile::TempDir;

/// Longer than any sample.
const NEVER_MS: u64 = 86_400_000;
const PER_S: &str = "adds/s";

/// Counters that are not pushed.
pub(super) struct Unpushed {
    pub(super) counters: LocalCounters,
    pub(super) handles: Vec<Handle>,
    _dir: TempDir,
}

impl Unpushed {
    async fn open(count: usize) -> Result<Unpushed> {
        let dir = tempfile::tempdir()?;
        let mut options = LocalOptions::default();
        (options.push_interval_ms, options.pull_interval_ms) = (NEVER_MS, NEVER_MS);
        options.slots_max = options.slots_max.max(count as u32);
        // Nothing calls it.
        let client = CounterClient::connect_lazy("http://127.0.0.1:9")?;
        let counters = LocalCounters::open(dir.path(), client, options).await?;
        let names: Vec<String> = (0..count).map(|number| format!("counter-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let handles = counters.handles("bench", &names)?;
        Ok(Unpushed { counters, handles, _dir: dir })
    }
}

/// Adds of all threads: in a second, and in a second of processor time, which other work on the machine disturbs less.
#[derive(Default)]
struct Rates {
    per_s: Samples,
    per_cpu_s: Samples,
}

/// The processor time of this thread so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Adds in threads, `orders`: the counters of each.
fn run(rates: &mut Rates, adds: u64, orders: &[Vec<u32>], add: impl Fn(&[u32], u64) + Sync) {
    let barrier = Barrier::new(orders.len());
    let time_of = |order: &[u32]| {
        // Its first add reserves cells.
        add(order, 1);
        barrier.wait();
        let (begin, begin_cpu) = (Instant::now(), cpu_time());
        add(order, adds);
        (begin, Instant::now(), cpu_time() - begin_cpu)
    };
    let times: Vec<(Instant, Instant, Duration)> = std::thread::scope(|scope| {
        let threads: Vec<_> = orders.iter().map(|order| scope.spawn(|| time_of(order))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let begin = times.iter().map(|(begin, ..)| *begin).min().expect("a thread");
    let end = times.iter().map(|(_, end, _)| *end).max().expect("a thread");
    let per_s = |adds: u64, time: Duration| adds as f64 / time.as_secs_f64().max(1e-9);
    let sample = |value| Sample { value, ..Sample::default() };
    rates.per_s.push(sample(per_s(adds * orders.len() as u64, end - begin)));
    rates.per_cpu_s.push(sample(times.iter().map(|(.., cpu)| per_s(adds, *cpu)).sum()));
}

/// The sides of a figure, for one thread and for two.
#[derive(Default)]
struct Sides {
    local: [Rates; 2],
    map: [Rates; 2],
    atomic: [Rates; 2],
}

async fn sides(plan: &LocalPlan, count: usize) -> Result<Sides> {
    let unpushed = Unpushed::open(count).await?;
    let handles = &unpushed.handles;
    let map: DashMap<u64, i64> = (0..count as u64).map(|key| (key, 0)).collect();
    let atomic = AtomicI64::new(0);
    let mut sides = Sides::default();
    let mut rng = StdRng::seed_from_u64(1);
    let orders: Vec<Vec<u32>> = (0..2)
        .map(|_| {
            // Each counter, in no order, and some of them twice: a power of two makes the next position cheap.
            let mut order: Vec<u32> = (0..count as u32).collect();
            order.shuffle(&mut rng);
            order.extend_from_within(..count.next_power_of_two() - count);
            order
        })
        .collect();
    // The map and the atomic are slower: fewer adds take the same time.
    let fewer = (plan.adds / 5).max(1);
    let mut expected = 0;
    for _ in 0..plan.runs {
        for threads in [1, 2] {
            let orders = &orders[..threads];
            run(&mut sides.local[threads - 1], plan.adds, orders, |order, adds| {
                in_order(order, adds, |number| handles[number as usize].add(1));
            });
            expected += threads as i64 * (plan.adds as i64 + 1);
            run(&mut sides.map[threads - 1], fewer, orders, |order, adds| {
                in_order(order, adds, |number| *map.get_mut(&u64::from(number)).expect("a key") += 1);
            });
            run(&mut sides.atomic[threads - 1], fewer, orders, |order, adds| {
                in_order(order, adds, |_| {
                    atomic.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
    }
    let added: i64 = handles.iter().map(Handle::unpushed).sum();
    ensure!(added == expected, "{added} of {expected} adds");
    ensure!(unpushed.counters.stats().pushed_adds == 0, "something was pushed");
    Ok(sides)
}

/// Makes this number of adds, to the counters of the order again and again.
#[inline]
fn in_order(order: &[u32], adds: u64, add: impl Fn(u32)) {
    if let [one] = order {
        (0..adds).for_each(|_| add(*one));
        return;
    }
    let (mut left, mask) = (adds, order.len() - 1);
    let mut at = 0;
    while left > 0 {
        add(order[at & mask]);
        at += 1;
        left -= 1;
    }
}

fn rows(sides: &Sides) -> Vec<Row> {
    let mut rows = Vec::new();
    for (per, rates) in [("", per_s as fn(&Rates) -> &Samples), (", processor time", per_cpu_s)] {
        let [local, map, atomic] = [&sides.local, &sides.map, &sides.atomic].map(|both| both.each_ref().map(rates));
        for (threads, name) in ["one thread", "two threads"].into_iter().enumerate() {
            let what = format!("{name}{per}");
            let row = |reference, goal| Row::new(what.clone(), PER_S, local[threads], reference, goal);
            let least = if threads == 0 { Goal::AtLeast(300e6) } else { Goal::None };
            rows.push(row(Reference::Measured("DashMap", map[threads]), least));
            if threads == 1 {
                rows.push(row(Reference::Measured("one thread", local[0]), Goal::RatioAtLeast(1.3)));
            }
            rows.push(row(Reference::Measured("one atomic integer", atomic[threads]), Goal::None));
        }
    }
    rows
}

fn per_s(rates: &Rates) -> &Samples {
    &rates.per_s
}

fn per_cpu_s(rates: &Rates) -> &Samples {
    &rates.per_cpu_s
}

pub(super) async fn one(plan: &LocalPlan) -> Result<Vec<Row>> {
    Ok(rows(&sides(plan, 1).await?))
}

pub(super) async fn many(plan: &LocalPlan) -> Result<Vec<Row>> {
    Ok(rows(&sides(plan, plan.counters).await?))
}
