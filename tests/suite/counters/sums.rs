//! Sums of a counter's adds by minute, hour and day (N16), from Redis and the archive.

use super::*;
use std::collections::BTreeMap;
use std::ops::Range;
use tallystone_counters::Deletions;
use tallystone_counters::log::{EventScan, Unlogged, WINDOW_MS};
use tallystone_counters::sums::{Period, PeriodSum, SumsPosition, sums};

const PERIODS: [Period; 3] = [Period::Minute, Period::Hour, Period::Day];
const HOUR_MS: u64 = 3_600_000;

/// A log of which one scan reads few windows: pages end in the middle of periods.
struct Slow<'a> {
    store: &'a Compared,
    windows_max: u64,
}

impl Events for Slow<'_> {
    async fn append_while(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Result<Appended, Unlogged>> {
        self.store.append_while(events, is_wanted).await
    }

    async fn find_archived(&self, late: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        self.store.find_archived(late).await
    }

    async fn scan(&self, counter: &CounterName, windows: Range<u64>, enough: usize) -> Result<EventScan, Refusal> {
        let end = windows.end.min(windows.start + self.windows_max);
        self.store.scan(counter, windows.start..end, enough).await
    }

    async fn tick(&self, until: &[(CounterName, u64)]) -> Result<Vec<u64>, Refusal> {
        self.store.tick(until).await
    }

    async fn exact_to(&self, counter: &CounterName) -> Result<u64, Refusal> {
        self.store.exact_to(counter).await
    }

    async fn prune(&self, shard: u16) -> Result<u64, Refusal> {
        self.store.prune(shard).await
    }
}

impl Deletions for Slow<'_> {
    async fn delete(&self, counter: &CounterName, cleared_ms: u64) -> Result<(), Refusal> {
        self.store.delete(counter, cleared_ms).await
    }

    async fn deleted_to(&self, counter: &CounterName) -> Result<Option<u64>, Refusal> {
        self.store.deleted_to(counter).await
    }
}

/// All pages of a range.
pub(super) async fn all_sums(
    log: &(impl Events + Deletions),
    name: &str,
    period: Period,
    within_ms: Range<u64>,
    now_ms: u64,
) -> Vec<PeriodSum> {
    let mut from = SumsPosition::first(period, within_ms, now_ms + 1_500);
    let exact_to_ms = log.exact_to(&counter(name)).await.expect("a fence");
    let mut all = Vec::new();
    loop {
        let page = sums(log, &counter(name), period, from).await.expect("a page");
        assert_eq!(page.exact_to_ms, exact_to_ms, "of the first page");
        all.extend(page.sums);
        let Some(next) = page.next else { return all };
        assert!(next.next_ms > from.next_ms && next.end_ms == from.end_ms, "{next:?} after {from:?}");
        from = next;
    }
}

/// What was added: the sums as they should be.
#[derive(Default)]
struct Adds(Vec<(&'static str, u64, i64)>);

impl Adds {
    fn sums(&self, name: &str, period: Period, within_ms: Range<u64>) -> Vec<PeriodSum> {
        let mut sums: BTreeMap<u64, (i128, u64)> = BTreeMap::new();
        for (_, time_ms, delta) in self.0.iter().filter(|(of, ..)| *of == name) {
            let (sum, adds) = sums.entry(time_ms - time_ms % period.length_ms()).or_default();
            (*sum, *adds) = (*sum + i128::from(*delta), *adds + 1);
        }
        let is_in = |(from_ms, _): &(u64, (i128, u64))| {
            *from_ms < within_ms.end && within_ms.start < from_ms + period.length_ms()
        };
        let sum = |(from_ms, (sum, adds))| PeriodSum { from_ms, sum, adds };
        sums.into_iter().filter(is_in).map(sum).collect()
    }
}

#[tokio::test]
async fn n16_sums_by_minute_hour_and_day_are_those_of_the_adds() {
    for archived in [false, true] {
        let config = NamespaceConfig { archived, seconds_per_slice: 7_200, ..NamespaceConfig::default() };
        let mut ns = TestNamespace::new("sums", config).await;
        let (mut added, mut deleted_ms) = (Adds::default(), 0);
        for round in 0..120_u64 {
            let now_ms = ns.now_ms();
            for n in 0..rand::random_range(0..12_u64) {
                let (name, delta) = (["a", "b"][(n % 3 / 2) as usize], rand::random_range(-5..1_000));
                let time_ms = now_ms - rand::random_range(0..4_000);
                assert_eq!(ns.append_one(add(name, &format!("{round}-{n}"), time_ms, delta)).await, counted(time_ms));
                // An add may come after a deletion, and have happened before it.
                if name == "a" || time_ms > deleted_ms {
                    added.0.push((name, time_ms, delta));
                }
            }
            match rand::random_range(0..12) {
                // It takes nothing out of the sums.
                0 => drop(ns.append_one(event("a", &format!("clear {round}"), now_ms, Change::Clear)).await),
                1 => {
                    let cleared = ns.append_one(event("b", &format!("delete {round}"), now_ms, Change::Clear)).await;
                    let cleared_ms = cleared.expect("a clear").time_ms;
                    ns.store.delete(&counter("b"), cleared_ms).await.expect("a deletion");
                    added.0.retain(|(name, time_ms, _)| *name == "a" || *time_ms > cleared_ms);
                    deleted_ms = cleared_ms;
                }
                _ => {}
            }
            ns.pass(rand::random_range(1_000..1_500_000));
            for name in ["a", "b"] {
                ns.roll_up(name).await;
            }
            if archived {
                let _ = ns.archive_and_die(rand::random_range(0..120)).await;
            }
            if round % 20 == 19 {
                for (period, name) in PERIODS.into_iter().flat_map(|period| [(period, "a"), (period, "b")]) {
                    let now_ms = ns.now_ms();
                    let to_ms = now_ms - rand::random_range(0..10 * HOUR_MS);
                    let within_ms = to_ms - rand::random_range(0..20 * HOUR_MS)..to_ms;
                    let slow = Slow { store: &ns.store, windows_max: rand::random_range(1_000..40_000) };
                    for within_ms in [1..now_ms, within_ms] {
                        let expected = added.sums(name, period, within_ms.clone());
                        assert_eq!(all_sums(&ns.store, name, period, within_ms.clone(), now_ms).await, expected);
                        // Not from the beginning of time in small steps.
                        let within_ms = within_ms.start.max(NOON_MS - HOUR_MS)..within_ms.end;
                        assert_eq!(all_sums(&slow, name, period, within_ms, now_ms).await, expected, "in small steps");
                    }
                }
            }
        }
    }
}

/// The bound that says which sums are exact is the fence that refuses adds.
#[tokio::test]
async fn n16_no_add_comes_before_the_time_to_which_sums_are_exact() {
    let mut ns = TestNamespace::new("final", NamespaceConfig::default()).await;
    let names: Vec<CounterName> = (0..50).map(|number| counter(&format!("c{number}"))).collect();
    for round in 0..40_u64 {
        let from = SumsPosition::first(Period::Minute, 0..0, ns.now_ms());
        for name in &names {
            let exact_to_ms = sums(&ns.store, name, Period::Minute, from).await.expect("a page").exact_to_ms;
            assert!(exact_to_ms < ns.now_ms());
            let late = add(name.as_str(), &format!("late {round}"), exact_to_ms.saturating_sub(1), 1);
            let refused = ns.append_one(late).await;
            assert!(matches!(refused, Err(Refusal::TooOld | Refusal::TokenExpired)), "{refused:?}");
            if exact_to_ms + 4_000 > ns.now_ms() {
                let last = add(name.as_str(), &format!("last {round}"), exact_to_ms, 1);
                assert_eq!(ns.append_one(last).await, counted(exact_to_ms), "it is not later than need be");
            }
        }
        ns.pass(rand::random_range(1..6_000));
        // Seals the shards of these counters.
        ns.roll_up(&format!("c{}", round % 50)).await;
    }
    assert_eq!(ns.latest_ms() / WINDOW_MS, ns.now_ms() / WINDOW_MS);
}

/// A page says nothing of what came meanwhile to the periods of an earlier one.
#[tokio::test]
async fn n16_all_pages_are_exact_to_the_time_of_the_first() {
    let mut ns = TestNamespace::new("pages", NamespaceConfig::default()).await;
    assert!(ns.append_one(add("c", "early", NOON_MS, 1)).await.is_ok());
    let from = SumsPosition::first(Period::Day, 0..0, NOON_MS + 1_500);
    let page = async |ns: &TestNamespace, from| {
        let slow = Slow { store: &ns.store, windows_max: 1_000_000 };
        sums(&slow, &counter("c"), Period::Day, from).await.expect("a page")
    };
    let first = page(&ns, from).await;
    let next = first.next.expect("it is not the last page");
    ns.pass(60_000);
    ns.roll_up("c").await;
    assert_eq!(page(&ns, next).await.exact_to_ms, first.exact_to_ms);
    assert!(page(&ns, from).await.exact_to_ms > NOON_MS, "a call that begins later knows more");
}
