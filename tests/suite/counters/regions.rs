//! Regions (N12): counters that follow clears of other regions, and random programs over three regions, whose records come late,
//! twice, in any order, or not at all for a while. An oracle knows every add and every clear.

use super::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use tallystone_counters::audit::{Groups, begin, go_on};
use tallystone_counters::recount::{Recounts, recount};
use tallystone_counters::regions::{Followed, GlobalCount, RegionRecord, follow_clear, global};
use tallystone_counters::{Deletions, RegionName};

const REGIONS: [&str; 3] = ["eu", "us", "ap"];
const COUNTERS: [&str; 3] = ["a", "b", "c"];
/// How long a random program is.
const STEPS: usize = 1_500;
pub(super) const DAY_MS: u64 = 86_400_000;

pub(super) fn region(name: &str) -> RegionName {
    RegionName::parse(name).expect("a region")
}

pub(super) fn config() -> NamespaceConfig {
    NamespaceConfig { regions: REGIONS.map(region).to_vec(), ..NamespaceConfig::default() }
}

/// The namespace of one region, on the clock of all.
struct TestRegion {
    store: RedisNamespace,
    name: RegionName,
    leases: u64,
}

impl TestRegion {
    async fn start(redis: &TestRedis, name: &str, clock_ms: &Arc<AtomicU64>, archive: &ArchiveFolder) -> TestRegion {
        let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let namespaces = namespaces.with_region(Some(region(name))).with_archive(Some(archive.archive.clone()));
        let of = NamespaceName::parse(format!("{name}-{:08x}", rand::random::<u32>())).expect("a namespace");
        let namespace = Namespace { name: of, config: config(), revision: 1, incarnation: 0, kept_from_ms: 0 };
        let store = namespaces.open(&namespace).await.expect("its stores");
        TestRegion { store, name: region(name), leases: 0 }
    }

    async fn checkpoint(&self, name: &str) -> Checkpoint {
        self.store.read(&[counter(name)]).await.expect("checkpoints").remove(0)
    }

    async fn roll_up(&mut self, name: &str) {
        self.leases += 1;
        let lease = LeaseOrder { leased_at_ms: self.store.now_ms(), fencing_token: self.leases };
        roll_up(&self.store, &self.store, &[Job { counter: counter(name), lease }]).await.remove(0).expect("a rollup");
    }

    /// The global count as a reader of this region gets it.
    async fn global(&self, name: &str) -> GlobalCount {
        let own = self.store.region_record(&self.checkpoint(name).await);
        let mut others = self.store.known(&[counter(name)]).await.expect("records").remove(0).into_iter();
        let known = REGIONS.map(|name| match region(name) {
            name if name == self.name => (name, Some(own)),
            name => (name, others.next().expect("a record or none")),
        });
        global(&known).expect("a sum")
    }

    /// Takes the records of what needs attention; unless it `dies` then, the counters do what they lack.
    async fn publish(&mut self, dies: bool) -> Vec<(CounterName, RegionRecord)> {
        let mut records = Vec::new();
        for shard in 0..SHARDS {
            let counters = self.store.behind(shard, 100).await.expect("counters");
            let checkpoints = self.store.read(&counters).await.expect("checkpoints");
            let published: Vec<(CounterName, Checkpoint)> = counters.into_iter().zip(checkpoints).collect();
            let record = |(counter, checkpoint): &(CounterName, Checkpoint)| {
                (counter.clone(), self.store.region_record(checkpoint))
            };
            records.extend(published.iter().filter(|(_, checkpoint)| checkpoint.exact_to_ms > 0).map(record));
            if dies {
                continue;
            }
            let lacking = self.store.attend(shard, &published, 1, 0).await.expect("an answer");
            for ((name, _), lacking) in published.into_iter().zip(lacking) {
                if let Some(clear_ms) = lacking.clear_ms {
                    follow_clear(&self.store, &name, clear_ms, || 0).await.expect("an outcome");
                }
                if lacking.is_earlier || lacking.clear_ms.is_some() {
                    self.store.touch(&[(name.clone(), true)]).await.expect("an answer");
                }
            }
        }
        records
    }

    /// Rolls up what is due.
    async fn roll_up_due(&mut self) {
        for shard in 0..SHARDS {
            for (name, _) in self.store.due(shard, 100, 1).await.expect("an answer").counters {
                self.roll_up(name.as_str()).await;
            }
        }
    }
}

/// Every add and clear.
#[derive(Default)]
struct World {
    /// By region and counter, with their times.
    adds: BTreeMap<(String, &'static str), Vec<(u64, i64)>>,
    clears: BTreeMap<&'static str, Vec<u64>>,
}

impl World {
    /// The sum of a region's adds after one time and before another one.
    fn sum(&self, region: &RegionName, name: &'static str, after_ms: u64, before_ms: u64) -> i64 {
        let adds = self.adds.get(&(region.to_string(), name)).into_iter().flatten();
        adds.filter(|(at_ms, _)| (after_ms == 0 || *at_ms > after_ms) && *at_ms < before_ms)
            .map(|(_, delta)| delta)
            .sum()
    }

    fn last_clear(&self, name: &str) -> u64 {
        self.clears.get(name).into_iter().flatten().max().copied().unwrap_or_default()
    }

    /// Whether a global count is what some clear, and the times of its parts, say that it is.
    fn check(&self, name: &'static str, global: &GlobalCount) {
        let clears = self.clears.get(name).into_iter().flatten().copied();
        let holds = |cleared_ms: u64| {
            let of_part = |part: &tallystone_counters::regions::RegionCount| {
                part.count == self.sum(&part.region, name, cleared_ms, part.exact_to_ms)
                    && (cleared_ms == 0 || part.exact_to_ms > cleared_ms)
            };
            global.parts.iter().all(of_part)
        };
        assert!([0].into_iter().chain(clears).any(holds), "{name}: {global:?} is exact after no clear");
        assert_eq!(global.count, global.parts.iter().map(|part| part.count).sum::<i64>());
        assert_eq!(Some(global.exact_to_ms), global.parts.iter().map(|part| part.exact_to_ms).min());
    }
}

/// A record on its way to another region.
type Sent = (usize, CounterName, RegionName, RegionRecord);

struct Program {
    random: StdRng,
    clock_ms: Arc<AtomicU64>,
    regions: Vec<TestRegion>,
    world: World,
    sent: Vec<Sent>,
    tokens: u64,
}

impl Program {
    async fn step(&mut self) {
        let (at, name) = (self.random.random_range(0..3), *COUNTERS.choose(&mut self.random).expect("a counter"));
        match self.random.random_range(0..100) {
            0..40 => self.add(at, name).await,
            40..43 => drop(self.clear(at, name).await),
            43..45 => self.delete(at, name).await,
            45..60 => self.pass().await,
            60..72 => self.regions[at].roll_up(name).await,
            72..78 => self.regions[at].roll_up_due().await,
            78..86 => {
                let dies = self.random.random_bool(0.3);
                self.publish(at, dies).await;
            }
            86..98 => self.deliver().await,
            _ => self.recount(at, name).await,
        }
        let read = self.regions[at].global(name).await;
        self.world.check(name, &read);
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }

    async fn pass(&mut self) {
        let ms = *[1, 200, 700, 3_000, 20_000].choose(&mut self.random).expect("a time");
        self.clock_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// An event of about now; `None`: it is too old.
    async fn append(&mut self, at: usize, name: &'static str, change: Change) -> Option<u64> {
        self.tokens += 1;
        let time_ms = self.now_ms().saturating_sub(self.random.random_range(0..6_000));
        let event = event(name, &format!("t{}", self.tokens), time_ms, change);
        match self.regions[at].store.append(&[event]).await.remove(0) {
            Ok(Appended { time_ms, .. }) => Some(time_ms),
            Err(Refusal::TooOld) => None,
            Err(other) => panic!("{other}"),
        }
    }

    async fn add(&mut self, at: usize, name: &'static str) {
        let delta = self.random.random_range(-5..100);
        if let Some(time_ms) = self.append(at, name, Change::Add(delta)).await {
            let region = self.regions[at].name.to_string();
            self.world.adds.entry((region, name)).or_default().push((time_ms, delta));
        }
    }

    async fn clear(&mut self, at: usize, name: &'static str) -> Option<u64> {
        let time_ms = self.append(at, name, Change::Clear).await?;
        self.world.clears.entry(name).or_default().push(time_ms);
        Some(time_ms)
    }

    async fn delete(&mut self, at: usize, name: &'static str) {
        if let Some(time_ms) = self.clear(at, name).await {
            self.regions[at].store.delete(&counter(name), time_ms).await.expect("a deletion");
        }
    }

    /// A recount whose events are all there changes nothing but the epoch.
    async fn recount(&mut self, at: usize, name: &'static str) {
        let (store, name) = (&self.regions[at].store, counter(name));
        self.tokens += 1;
        let mut audit = begin(store, &name, &mut Groups::default()).await.expect("an audit");
        while !audit.is_finished() {
            audit = go_on(store, &name, audit, &mut Groups::default()).await.expect("a page");
        }
        assert_eq!(audit.recounted(), i128::from(audit.count), "the audit of '{name}' differs");
        let of_events = super::recounts::of_count(&format!("r{}", self.tokens), 0);
        let of_events = tallystone_counters::recount::Recount { audit: Some(audit), ..of_events };
        match recount(store, &name, &of_events, 0).await {
            Ok(recounted) => assert_eq!(recounted.new_count, recounted.old_count),
            Err(Refusal::CounterNotFound { .. } | Refusal::CounterChanged { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    async fn publish(&mut self, at: usize, dies: bool) {
        let records = self.regions[at].publish(dies).await;
        let name = self.regions[at].name.clone();
        for to in (0..3).filter(|to| *to != at) {
            self.sent.extend(records.iter().map(|(counter, record)| (to, counter.clone(), name.clone(), *record)));
        }
    }

    /// Some record arrives, perhaps once more later.
    async fn deliver(&mut self) {
        for _ in 0..self.random.random_range(1..6) {
            if self.sent.is_empty() {
                return;
            }
            let which = self.random.random_range(0..self.sent.len());
            let (to, counter, from, record) = match self.random.random_bool(0.3) {
                true => self.sent[which].clone(),
                false => self.sent.swap_remove(which),
            };
            self.regions[to].store.merge(&[(counter, from, record)]).await.expect("merged");
        }
    }

    /// Everything arrives in the end, in any order.
    async fn settle(&mut self) {
        for _ in 0..12 {
            self.clock_ms.fetch_add(20_000, Ordering::SeqCst);
            for at in 0..3 {
                self.regions[at].roll_up_due().await;
                self.publish(at, false).await;
            }
            while !self.sent.is_empty() {
                self.deliver().await;
            }
        }
        for name in COUNTERS {
            let cleared_ms = self.world.last_clear(name);
            let last_ms = self.world.adds.iter().filter(|((_, of), _)| *of == name);
            let last_ms = last_ms.flat_map(|(_, adds)| adds).map(|(at_ms, _)| *at_ms).max().unwrap_or_default();
            for reader in &self.regions {
                let found = reader.global(name).await;
                let sum = |region: &str| self.world.sum(&self::region(region), name, cleared_ms, u64::MAX);
                assert_eq!(found.count, REGIONS.iter().map(|region| sum(region)).sum::<i64>(), "{name}: {found:?}");
                if last_ms > 0 {
                    assert!(found.exact_to_ms > last_ms, "{name}: {found:?} is not exact to {last_ms}");
                }
            }
        }
        for region in &self.regions {
            assert_eq!(region.store.num_behind().await, Ok(0), "{} needs attention", region.name);
        }
    }
}

/// `TALLYSTONE_SEED` repeats the choices of a run.
#[tokio::test]
async fn n12_every_region_has_the_same_count_whatever_order_its_records_come_in() {
    let seed = std::env::var("TALLYSTONE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    println!("TALLYSTONE_SEED={seed}");
    let (redis, archive) = (TestRedis::shared().await, ArchiveFolder::new());
    let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
    let mut regions = Vec::new();
    for name in REGIONS {
        regions.push(TestRegion::start(&redis, name, &clock_ms, &archive).await);
    }
    let (random, world, sent) = (StdRng::seed_from_u64(seed), World::default(), Vec::new());
    let mut program = Program { random, clock_ms, regions, world, sent, tokens: 0 };
    for _ in 0..STEPS {
        program.step().await;
    }
    program.settle().await;
}

impl TestNamespace {
    pub(super) async fn with_regions(test: &str) -> TestNamespace {
        TestNamespace::new(test, NamespaceConfig { archived: true, ..config() }).await
    }

    async fn follow(&self, name: &str, clear_ms: u64) -> Result<Followed, Refusal> {
        follow_clear(&self.store, &counter(name), clear_ms, || 0).await
    }
}

#[tokio::test]
async fn n12_a_counter_that_follows_a_clear_keeps_what_came_after_it() {
    let mut ns = TestNamespace::with_regions("follow").await;
    assert_eq!(ns.follow("a", NOON_MS).await, Ok(Followed::NotYet), "it was never written");
    for (token, at_ms, delta) in [("t", NOON_MS, 5), ("u", NOON_MS + 1, 7), ("v", NOON_MS + 2, 11)] {
        ns.append_one(add("a", token, at_ms, delta)).await.expect("an add");
    }
    assert_eq!(ns.settled("a").await, 23);
    // Also from the archive.
    ns.pass(60_000);
    ns.archive_and_die(u64::MAX).await.expect("it ends").expect("a pass");
    assert_eq!(ns.follow("a", NOON_MS + 1).await, Ok(Followed::Done));
    let checkpoint = ns.checkpoint("a").await;
    assert_eq!((checkpoint.count, checkpoint.cleared_ms), (11, NOON_MS + 1), "an add of the same time is removed");
    assert_eq!(ns.follow("a", NOON_MS).await, Ok(Followed::Done), "an earlier clear changes nothing");
    assert_eq!(ns.count("a").await, 11);
    let audit = super::recounts::audited(&ns.store, &counter("a")).await;
    assert_eq!((audit.recounted(), audit.events), (11, 1), "an audit counts what came after the clear");
    // Later adds count, and a later clear of this region.
    ns.append_one(add("a", "w", ns.now_ms(), 100)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 111);
    let cleared_ms = ns.now_ms();
    ns.append_one(event("a", "x", cleared_ms, Change::Clear)).await.expect("a clear");
    ns.append_one(add("a", "y", cleared_ms + 1, 1_000)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 1_000);
    assert_eq!(ns.checkpoint("a").await.cleared_ms, cleared_ms);
    assert_eq!(ns.follow("a", cleared_ms - 1).await, Ok(Followed::Done));
    assert_eq!(ns.count("a").await, 1_000);
}

/// A rollup that began before has the old count, and must not write it back.
#[tokio::test]
async fn n12_a_rollup_that_began_before_a_counter_followed_a_clear_is_lost() {
    let mut ns = TestNamespace::with_regions("stale").await;
    ns.append_one(add("a", "t", NOON_MS, 5)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 5);
    let before = ns.checkpoint("a").await;
    assert_eq!(ns.follow("a", NOON_MS).await, Ok(Followed::Done));
    let after = Checkpoint { exact_to_ms: before.exact_to_ms + 500, lease: ns.lease(), ..before };
    let update = tallystone_counters::CheckpointUpdate { counter: counter("a"), before, after };
    assert_eq!(ns.store.commit(&[update]).await, Ok(vec![tallystone_counters::Commit::Lost]));
    assert_eq!(ns.count("a").await, 0);
}

#[tokio::test]
async fn n12_adjustments_after_a_clear_stay_and_those_before_it_go() {
    let mut ns = TestNamespace::with_regions("adjusted").await;
    ns.append_one(add("a", "t", NOON_MS, 5)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 5);
    let adjust = async |ns: &TestNamespace, token: &str, adjustment| {
        let request = super::recounts::of_count(token, adjustment);
        recount(&ns.store, &counter("a"), &request, 0).await.expect("a recount")
    };
    let first = adjust(&ns, "r", 10).await;
    ns.append_one(add("a", "u", ns.now_ms(), 100)).await.expect("an add");
    let clear_ms = ns.now_ms() - 1;
    assert!(first.exact_to_ms <= clear_ms);
    assert_eq!(ns.settled("a").await, 115);
    adjust(&ns, "s", 1_000).await;
    assert_eq!(ns.follow("a", clear_ms).await, Ok(Followed::Done));
    let checkpoint = ns.checkpoint("a").await;
    assert_eq!((checkpoint.count, checkpoint.epoch.adjusted, checkpoint.epoch.number), (1_100, 1_000, 2));
    assert_eq!(ns.store.recounts(&counter("a")).await.expect("recounts").len(), 2, "they stay");
}

#[tokio::test]
async fn n12_a_clear_that_comes_after_events_were_dropped_is_refused() {
    let mut ns = TestNamespace::with_regions("dropped").await;
    ns.append_one(add("a", "t", NOON_MS, 5)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 5);
    let kept_from_ms = ns.now_ms() + DAY_MS;
    let followed = follow_clear(&ns.store, &counter("a"), NOON_MS - 1, || kept_from_ms).await;
    assert_eq!(followed, Err(Refusal::EventsDropped { kept_from_ms }));
    assert_eq!(ns.count("a").await, 5);
    // A counter without an event after the clear has none that was dropped.
    let added_ms = ns.now_ms();
    ns.append_one(add("b", "t", added_ms, 5)).await.expect("an add");
    assert_eq!(ns.settled("b").await, 5);
    assert_eq!(follow_clear(&ns.store, &counter("b"), added_ms, || kept_from_ms).await, Ok(Followed::Done));
    assert_eq!(ns.count("b").await, 0);
    // The mark of a deleted counter needs no events.
    ns.append_one(event("a", "u", ns.now_ms(), Change::Clear)).await.expect("a clear");
    ns.store.delete(&counter("a"), ns.now_ms()).await.expect("a deletion");
    ns.settled("a").await;
    let clear_ms = ns.checkpoint("a").await.exact_to_ms - 1;
    assert_eq!(follow_clear(&ns.store, &counter("a"), clear_ms, || kept_from_ms).await, Ok(Followed::Done));
    let mark = ns.checkpoint("a").await;
    assert_eq!((mark.is_deleted, mark.cleared_ms), (true, clear_ms));
}

/// Other regions have the time of a clear of before: a record without it would lose against theirs.
#[tokio::test]
async fn n12_a_counter_keeps_the_time_of_its_last_clear_while_its_namespace_has_no_regions() {
    let mut ns = TestNamespace::with_regions("removed").await;
    for name in ["a", "b"] {
        let now_ms = ns.now_ms();
        ns.append_one(add(name, "t", now_ms, 5)).await.expect("an add");
        ns.append_one(event(name, "u", now_ms + 1, Change::Clear)).await.expect("a clear");
        ns.append_one(add(name, "v", now_ms + 2, 7)).await.expect("an add");
        assert_eq!(ns.settled(name).await, 7);
    }
    let alone = NamespaceConfig { archived: true, ..NamespaceConfig::default() };
    ns.reconfigure(alone.clone()).await;
    ns.append_one(add("a", "w", ns.now_ms(), 100)).await.expect("an add");
    assert_eq!(ns.settled("a").await, 107);
    assert_eq!(ns.checkpoint("a").await.cleared_ms, NOON_MS + 1);
    let cleared_ms = ns.now_ms();
    ns.append_one(event("b", "w", cleared_ms, Change::Clear)).await.expect("a clear");
    assert_eq!(ns.settled("b").await, 0);
    ns.reconfigure(NamespaceConfig { archived: true, ..config() }).await;
    ns.append_one(add("b", "x", ns.now_ms(), 1)).await.expect("an add");
    assert_eq!(ns.settled("b").await, 1);
    assert_eq!(ns.checkpoint("b").await.cleared_ms, cleared_ms);
    // What other namespaces pay: nothing.
    let mut other = TestNamespace::new("alone", alone).await;
    other.append_one(event("a", "t", NOON_MS, Change::Clear)).await.expect("a clear");
    assert_eq!((other.settled("a").await, other.checkpoint("a").await.cleared_ms), (0, 0));
}

/// A rollup of a process that has not noticed that the namespace has regions would leave out the time of a clear.
#[tokio::test]
async fn n12_a_rollup_by_an_earlier_revision_commits_nothing() {
    let mut ns =
        TestNamespace::new("stale-revision", NamespaceConfig { archived: true, ..NamespaceConfig::default() }).await;
    ns.append_one(event("a", "t", NOON_MS, Change::Clear)).await.expect("a clear");
    ns.append_one(add("a", "u", NOON_MS + 1, 5)).await.expect("an add");
    ns.pass(60_000);
    let (job, name) = (ns.job(&counter("a")), [counter("a")]);
    let (before, sealed) = (ns.checkpoint("a").await, ns.store.seal(&name).await.expect("a seal").remove(0));
    let earlier = ns.server(&ns.config, ns.revision).await.expect("its stores");
    ns.reconfigure(NamespaceConfig { archived: true, ..config() }).await;
    let after = Checkpoint { count: 5, exact_to_ms: sealed.sealed_to_ms, lease: job.lease, ..before };
    let update = tallystone_counters::CheckpointUpdate { counter: counter("a"), before, after };
    assert_eq!(earlier.commit(&[update]).await, Err(Refusal::Stale));
    assert_eq!(earlier.delete(&counter("a"), ns.now_ms()).await, Err(Refusal::Stale));
    assert_eq!(ns.settled("a").await, 5);
    assert_eq!(ns.checkpoint("a").await.cleared_ms, NOON_MS);
}

/// Events of a day are kept when a clear arrives three days late, and those of a week when it is followed.
#[tokio::test]
async fn n12_what_was_dropped_stays_dropped_when_events_are_kept_for_longer() {
    let (redis, archive) = (TestRedis::shared().await, ArchiveFolder::new());
    for archived in [true, false] {
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let namespaces = namespaces.with_region(Some(region("eu"))).with_archive(Some(archive.archive.clone()));
        let name = NamespaceName::parse(format!("longer-{:08x}", rand::random::<u32>())).expect("a namespace");
        let day = NamespaceConfig { archived, close_after_ms: DAY_MS / 2, delete_after_ms: DAY_MS, ..config() };
        let week = NamespaceConfig { delete_after_ms: 7 * DAY_MS, ..day.clone() };
        let put = async |config: NamespaceConfig| {
            let namespace = namespaces.put(&name, config).await.expect("a namespace");
            namespaces.open(&namespace).await.expect("its stores")
        };
        let (store, a) = (put(day.clone()).await, counter("a"));
        store.append(&[add("a", "t", NOON_MS, 5)]).await.remove(0).expect("an add");
        clock_ms.fetch_add(60_000, Ordering::SeqCst);
        let lease = LeaseOrder { leased_at_ms: NOON_MS, fencing_token: 1 };
        roll_up(&store, &store, &[Job { counter: a.clone(), lease }]).await.remove(0).expect("a rollup");
        let audit = begin(&store, &a, &mut Groups::default()).await.expect("an audit");
        assert_eq!(store.kept_from_ms(), NOON_MS + 60_000 - DAY_MS);

        clock_ms.fetch_add(3 * DAY_MS, Ordering::SeqCst);
        // A prune that has read the configuration before may be a minute late.
        let kept_from_ms = NOON_MS + 60_000 + 2 * DAY_MS + 60_000;
        for config in [&week, &NamespaceConfig { coalesce_ms: 7, ..week.clone() }] {
            let store = put(config.clone()).await;
            assert_eq!(store.kept_from_ms(), kept_from_ms, "archived: {archived}");
            let followed = follow_clear(&store, &a, NOON_MS - 1, || store.kept_from_ms()).await;
            assert_eq!(followed, Err(Refusal::EventsDropped { kept_from_ms }));
            assert_eq!(store.read(std::slice::from_ref(&a)).await.expect("a checkpoint")[0].count, 5);
        }
        let cleared = tallystone_counters::audit::Audit { cleared_ms: NOON_MS, ..audit };
        assert!(!cleared.is_complete(kept_from_ms), "adds since the clear may be gone");
        // In time everything of a week is there.
        clock_ms.fetch_add(30 * DAY_MS, Ordering::SeqCst);
        let now_ms = clock_ms.load(Ordering::SeqCst);
        assert_eq!(put(week).await.kept_from_ms(), now_ms - 7 * DAY_MS);
        assert_eq!(put(day).await.kept_from_ms(), now_ms - DAY_MS);
    }
}

/// A region creates its namespace again and adds to one counter. The merger of another region dies on the way.
#[tokio::test]
async fn n12_a_later_namespace_hides_the_counts_of_earlier_ones_in_every_shard() {
    let ns = TestNamespace::with_regions("later").await;
    let (store, us) = (&ns.store.redis, region("us"));
    let names: Vec<CounterName> = (0..32).map(|number| counter(&format!("c{number}"))).collect();
    let record = |number: usize, incarnation, exact_to_ms, count| {
        let record = RegionRecord { incarnation, exact_to_ms, count, ..RegionRecord::default() };
        (names[number].clone(), us.clone(), record)
    };
    let counts = async || {
        let known = store.known(&names).await.expect("records").into_iter();
        // Of eu, us and ap.
        known.map(|records| records[1].map(|record| record.count)).collect::<Vec<Option<i64>>>()
    };
    let earlier: Vec<_> = (0..names.len()).map(|number| record(number, 1, NOON_MS, 5)).collect();
    assert_eq!(store.merge(&earlier).await, Ok(names.len() as u64));
    assert_eq!(counts().await, vec![Some(5); names.len()]);
    let later = [record(0, 4, NOON_MS - 5_000, 1)];
    for steps in 0..12 {
        die_after(steps, store.merge(&later)).await;
    }
    store.merge(&later).await.expect("merged");
    let expected: Vec<Option<i64>> = (0..names.len()).map(|number| (number == 0).then_some(1)).collect();
    assert_eq!(counts().await, expected);
    // A record that was on its way for long.
    assert_eq!(store.merge(&[record(1, 1, NOON_MS + 1_000, 9), record(2, 2, NOON_MS, 7)]).await, Ok(2));
    assert_eq!(counts().await, expected);
    assert_eq!(store.merge(&[record(3, 4, NOON_MS, 2)]).await, Ok(1));
    assert_eq!(counts().await[..5], [Some(1), None, None, Some(2), None]);
}
