//! Random programs: adds in batches, repetitions, late and early times, times by the store's own clock, clears, archivers, rollups of
//! many that die between any two steps or overlap under earlier and later leases, deletions, a namespace that is changed, scripts
//! that are forgotten, a clock that the test moves and sets back. Every answer is the model's; every checkpoint is the
//! oracle's count at its time; and when the dirty ones have been rolled up, nothing is pending, every count is exact and
//! every event is read back (N3, N5 to N12). Every reply of Redis is also the oracle's (`compared`).
//!
//! `TALLYSTONE_PROPERTY_SEED` repeats a failure.

use super::draw::{self, Deltas, NAMES, any_counter, one, some_counters};
use super::interrupted::{Dying, Last, Stopped};
use super::recounts::{Adjustments, audited};
use super::*;
use crate::property::setting;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use tallystone_counters::log::Closed;
use tallystone_counters::namespace::{Cardinality, FUTURE_LIMIT_MS, SKEW_MS};
use tallystone_counters::read::accurate;
use tallystone_counters::recount::{Recount, recount};
use tallystone_counters::rollup::COUNT_SOFT_MAX;
use tallystone_counters::{Deletions, Settlement};
use tallystone_link::ScanPosition;
use tallystone_lua::counter::HOLD_MAX_MS;
use tallystone_tests::amount;

const PROGRAMS: u64 = 30;
const PROGRAMS_LONG: u64 = 2_000;
/// On a Redis Cluster.
const CLUSTER_PROGRAMS: u64 = 5;
const CLUSTER_PROGRAMS_LONG: u64 = 200;
const STEPS: usize = 60;

#[tokio::test]
async fn n5_random_programs_count_what_the_model_counts() {
    // Not the shared one: the programs flush its scripts.
    run_programs(Arc::new(TestRedis::start().await), amount(PROGRAMS, PROGRAMS_LONG)).await;
}

#[tokio::test]
async fn q17_n5_random_programs_count_what_the_model_counts_on_a_cluster() {
    run_programs(Arc::new(TestRedis::cluster().await), amount(CLUSTER_PROGRAMS, CLUSTER_PROGRAMS_LONG)).await;
}

async fn run_programs(redis: Arc<TestRedis>, programs: u64) {
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    for seed in (first_seed..).take(programs as usize) {
        println!("TALLYSTONE_PROPERTY_SEED={seed}");
        let mut program = Program::new(seed, redis.clone()).await;
        for _ in 0..STEPS {
            program.step().await;
        }
        program.come_to_rest().await;
    }
}

struct Program {
    random: StdRng,
    ns: TestNamespace,
    deltas: Deltas,
    /// What was sent, and when it happened if it counted.
    sent: Vec<(NewEvent, Option<u64>)>,
    /// A server that does not know the last change.
    stale: Option<Compared>,
    leases: Vec<LeaseOrder>,
    /// Where the spans of committed rollups begin: no two may begin at the same time.
    spans: BTreeSet<(CounterName, u64)>,
    /// The clears of deletions, and up to when each counter is deleted.
    deletions: Vec<NewEvent>,
    deleted: BTreeMap<CounterName, u64>,
    /// Up to when each counter has expired: no earlier event counts.
    expired: BTreeMap<CounterName, u64>,
    adjustments: Adjustments,
}

impl Program {
    async fn new(seed: u64, redis: Arc<TestRedis>) -> Program {
        let mut random = StdRng::seed_from_u64(seed);
        let ns = TestNamespace::on(redis, "exactness", draw::config(&mut random)).await;
        let deltas = one(&mut random, &[Deltas::Mixed, Deltas::AroundWide, Deltas::Extreme]);
        let spans = BTreeSet::new();
        Program {
            random,
            ns,
            deltas,
            sent: Vec::new(),
            stale: None,
            leases: Vec::new(),
            spans,
            deletions: Vec::new(),
            deleted: BTreeMap::new(),
            expired: BTreeMap::new(),
            adjustments: Adjustments::default(),
        }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..26) {
            24 | 25 => self.recount().await,
            20 => self.delete().await,
            21 => self.expire().await,
            22 | 23 => self.archive().await,
            0..9 => self.append().await,
            9 | 10 => {
                let ms = one(&mut self.random, &[1, 100, 700, 3_000, 40_000]);
                self.ns.pass(self.random.random_range(0..=ms));
            }
            11..14 => self.roll_up_what_is_due().await,
            14 => self.roll_up_during_other_calls().await,
            15 => self.roll_up_under_an_earlier_lease().await,
            16 => self.read_during_a_rollup().await,
            17 => {
                let touched: Vec<_> =
                    some_counters(&mut self.random).into_iter().map(|name| (name, self.random.random())).collect();
                self.ns.store.touch(&touched).await.expect("touched");
            }
            18 => self.change_the_namespace().await,
            _ if self.random.random() => {
                let back_ms = one(&mut self.random, &[1, 499, 2_000, 30_000]);
                self.ns.set_back(back_ms);
            }
            _ => self.ns.redis.forget_scripts().await,
        }
    }

    async fn append(&mut self) {
        let events = draw::batch(&mut self.random, &self.ns, self.deltas, &self.sent);
        if let Some(stale) = &self.stale
            && self.random.random_ratio(1, 4)
        {
            // A delta that is too large for any shard is refused without a call.
            let answers = stale.append(&events).await;
            assert!(
                answers
                    .iter()
                    .all(|answer| matches!(answer, Err(Refusal::Stale | Refusal::Overflow | Refusal::Invalid { .. }))),
                "{answers:?}"
            );
        }
        let answers = self.ns.store.append(&events).await;
        for (event, answer) in events.into_iter().zip(answers) {
            self.sent.push((event, answer.ok().map(|appended| appended.time_ms)));
        }
    }

    /// As the service does; it may die between the steps, and a deletion may be repeated at any time.
    async fn delete(&mut self) {
        let ahead_ms = self.random.random_range(0..=1_000);
        let known = self.deletions.choose(&mut self.random).cloned();
        let fresh =
            event(any_counter(&mut self.random).as_str(), "deletion", self.ns.now_ms() + ahead_ms, Change::Clear);
        let fresh = NewEvent { token: draw::any_token(&mut self.random, &[36]), ..fresh };
        let deletion = known.filter(|_| self.random.random_ratio(1, 4)).unwrap_or(fresh);
        let Ok(cleared) = self.ns.append_one(deletion.clone()).await else { return };
        if self.random.random_ratio(1, 5) {
            return;
        }
        let is_ahead = cleared.time_ms > self.ns.now_ms() + FUTURE_LIMIT_MS + SKEW_MS;
        match self.ns.store.delete(&deletion.counter, cleared.time_ms).await {
            Ok(()) => assert!(!is_ahead, "{cleared:?}"),
            // The clock was set back since the first try.
            Err(refusal) => {
                assert!(is_ahead && matches!(refusal, Refusal::Unavailable { .. }), "{cleared:?}: {refusal}");
                return;
            }
        }
        let deleted_ms = self.deleted.entry(deletion.counter.clone()).or_default();
        *deleted_ms = cleared.time_ms.max(*deleted_ms);
        self.check_deleted(&deletion.counter).await;
        self.deletions.push(deletion);
    }

    /// An operator replaces a count, now and then by the sum of the events: nothing but the adjustment changes it.
    async fn recount(&mut self) {
        let name = any_counter(&mut self.random);
        let before = self.ns.checkpoint(name.as_str()).await;
        let adjustment = one(&mut self.random, &[0, 1, -1, 300, -70_000, 1 << 52]);
        let token = draw::any_token(&mut self.random, &[36]);
        let audit = if self.random.random() { Some(audited(&self.ns.store, &name).await) } else { None };
        let request = Recount { token, audit, adjustment, reason: "a test".to_owned() };
        let pending = self.ns.pending(name.as_str()).await;
        let windows = pending.iter().flat_map(|(_, pending)| &pending.windows);
        let waits = windows.filter_map(|window| window.cleared_ms).any(|cleared_ms| cleared_ms >= before.exact_to_ms);
        match recount(&self.ns.store, &name, &request, 0).await {
            Ok(recounted) => {
                let expected = (before.count, before.count + adjustment, before.epoch.number + 1);
                assert_eq!(
                    (recounted.old_count, recounted.new_count, recounted.epoch),
                    expected,
                    "'{name}': {before:?}"
                );
                // As the service does: the next rollup decides what the counter accepts.
                self.ns.store.touch(&[(name.clone(), true)]).await.expect("touched");
                self.adjustments.note(name, before.exact_to_ms, adjustment);
            }
            Err(Refusal::CounterNotFound { .. }) => assert!(before.is_deleted || before.exact_to_ms == 0, "{before:?}"),
            Err(Refusal::CounterChanged { .. }) => assert!(waits, "'{name}' has no clear that waits"),
            Err(refusal) => assert_eq!(refusal, Refusal::Overflow),
        }
    }

    /// An archiver moves what is old enough, and may die at any of its steps. Every answer stays that of the oracle (N15).
    async fn archive(&mut self) {
        if !self.ns.config.archived {
            return;
        }
        if self.random.random() {
            self.ns.pass(self.random.random_range(0..=40_000));
        }
        let polls = self.random.random_range(1..120);
        match self.ns.archive_and_die(polls).await {
            None | Some(Ok(_)) => {}
            // An archiver that has died may have left a call on its way, which takes the ticket.
            Some(Err(refusal)) => assert!(matches!(refusal, Refusal::Unavailable { .. }), "{refusal}"),
        }
    }

    /// Time passes without an event, or hardly any; what may have expired falls due.
    async fn expire(&mut self) {
        let after_ms = self.ns.config.expire_after_ms;
        if after_ms > 0 && self.random.random() {
            self.ns.pass(self.random.random_range(after_ms / 2..=2 * after_ms));
        }
        for shard in 0..SHARDS {
            let page = self.ns.store.redis.expiring(shard, ScanPosition::default()).await;
            let (found, _) = page.expect("a page");
            assert!(found.is_empty() || after_ms > 0, "{found:?}");
            let touched: Vec<_> = found.into_iter().map(|name| (name, true)).collect();
            self.ns.store.touch(&touched).await.expect("touched");
        }
    }

    /// What a count is, as the oracle's, without what has expired.
    fn count(&self, name: &CounterName, before_ms: u64) -> i128 {
        let expired_ms = self.expired.get(name).copied().unwrap_or_default();
        // No event was between the last one that has expired and that time, so all of them were in the count.
        let of_events = self.ns.oracle.count_since(name, expired_ms, before_ms);
        of_events + self.adjustments.sum(&self.ns.oracle, name, expired_ms, before_ms)
    }

    /// A deleted counter answers like one that was never written, until an add comes that happened later.
    async fn check_deleted(&self, name: &CounterName) {
        let Some(deleted_ms) = self.deleted.get(name) else { return };
        let events = self.ns.oracle.events(name).into_values().flatten();
        let is_written = events.filter(|event| event.change != Change::Clear).any(|event| event.time_ms > *deleted_ms)
            || self.adjustments.any_after(name, *deleted_ms);
        let checkpoint = self.ns.checkpoint(name.as_str()).await;
        assert!(checkpoint.is_deleted || is_written, "'{name}' was deleted at {deleted_ms} and has {checkpoint:?}");
    }

    /// As workers do, some of which die on the way.
    async fn roll_up_what_is_due(&mut self) {
        let mut due: BTreeSet<CounterName> = self.ns.due(2_000).await.into_iter().map(|(name, _)| name).collect();
        if self.random.random_ratio(1, 8) {
            // The queue is full: whatever was due comes later. A counter that is not dirty in a shard stays clean.
            let names: Vec<CounterName> = std::mem::take(&mut due).into_iter().collect();
            for shard in 0..SHARDS {
                self.ns.store.defer(shard, &names, 3_000).await.expect("its stores");
            }
        }
        let jobs: Vec<Job> = due.iter().map(|name| self.ns.job(name)).collect();
        let store = self.ns.store.clone();
        let narrow = self.ns.narrow(self.random.random_range(1..=self.ns.config.buckets_per_id)).await;
        let of_one_call = self.random.random_range(1..=NAMES.len());
        for jobs in jobs.chunks(of_one_call) {
            let last = one(&mut self.random, &[Last::Lost, Last::InPart, Last::Unheard]);
            let dying = Dying::new(&store, &narrow, self.random.random_range(1..12), last);
            let results = roll_up(&dying, &dying, jobs).await;
            for (job, result) in jobs.iter().zip(results) {
                match result {
                    Err(refusal) => assert!(matches!(refusal, Refusal::Unavailable { .. }), "{refusal}"),
                    Ok(rolled_up) => {
                        assert_ne!(rolled_up, RolledUp::Lost, "no other rollup runs");
                        self.stands(job, &rolled_up);
                    }
                }
            }
            self.check_checkpoints(jobs).await;
        }
    }

    /// A worker is stopped at any of its steps; meanwhile time passes, events come, and another rolls up, under a later
    /// lease or an earlier one.
    async fn roll_up_during_other_calls(&mut self) {
        let mut leases = [self.ns.lease(), self.ns.lease()];
        if self.random.random() {
            leases.reverse();
        }
        let jobs = leases.map(|lease| {
            let job = |counter| Job { counter, lease };
            some_counters(&mut self.random).into_iter().map(job).collect::<Vec<Job>>()
        });
        let store = self.ns.store.clone();
        let stopped = Stopped::after(self.random.random_range(0..6), &store);
        let first = roll_up(&stopped, &stopped, &jobs[0]);
        let second = async {
            if self.random.random() {
                self.append().await;
            }
            self.ns.pass(self.random.random_range(0..=2_000));
            if self.random.random() {
                self.append().await;
            }
            if self.random.random_ratio(1, 3) {
                self.delete().await;
            }
            if self.random.random() {
                self.recount().await;
            }
            roll_up(&store, &store, &jobs[1]).await
        };
        let (first, second) = stopped.meanwhile(first, second).await;
        // They stand in this order: the second had not begun when the first was stopped, nor the first gone on.
        for (jobs, results) in jobs.iter().zip([first, second]) {
            for (job, result) in jobs.iter().zip(results) {
                self.stands(job, &result.expect("a rollup"));
            }
        }
        self.check_checkpoints(&jobs.concat()).await;
    }

    /// A worker whose lease is long over loses its commit, unless no later lease has written.
    async fn roll_up_under_an_earlier_lease(&mut self) {
        let Some(lease) = self.leases.get(self.random.random_range(0..self.leases.len().max(1))).copied() else {
            return;
        };
        let jobs = [Job { counter: any_counter(&mut self.random), lease }];
        let before = self.ns.checkpoint(jobs[0].counter.as_str()).await;
        let store = self.ns.store.clone();
        let rolled_up = roll_up(&store, &store, &jobs).await.remove(0).expect("a rollup");
        match rolled_up {
            RolledUp::Committed { .. } => assert!(before.lease <= lease, "{before:?} gave way to {lease:?}"),
            RolledUp::Lost => assert!(before.lease > lease, "{before:?} did not give way to {lease:?}"),
            RolledUp::Nothing { checkpoint } => assert_eq!(checkpoint, before),
        }
        self.stands(&jobs[0], &rolled_up);
        self.check_checkpoints(&jobs).await;
    }

    /// An accurate read is stopped at any of its steps while a rollup runs.
    async fn read_during_a_rollup(&mut self) {
        let (names, others) = (some_counters(&mut self.random), some_counters(&mut self.random));
        let jobs: Vec<Job> = others.iter().map(|name| self.ns.job(name)).collect();
        let store = self.ns.store.clone();
        let stopped = Stopped::after(self.random.random_range(0..6), &store);
        let read = accurate(&stopped, &stopped, &names);
        let (counts, results) = stopped.meanwhile(read, roll_up(&store, &store, &jobs)).await;
        for (name, (count, _)) in names.iter().zip(counts.expect("counts")) {
            // The rollup may have found it expired.
            let before = self.count(name, u64::MAX);
            self.note_expired(name).await;
            let expected = [before, self.count(name, u64::MAX)];
            assert!(expected.contains(&i128::from(count)), "an accurate read of '{name}': {count}, {expected:?}");
        }
        for (job, result) in jobs.iter().zip(results) {
            self.stands(job, &result.expect("a rollup"));
        }
    }

    /// The server that does not know of the change can do nothing any more.
    async fn change_the_namespace(&mut self) {
        let config = draw::changed(&mut self.random, &self.ns.config);
        let stale = self.ns.store.clone();
        self.ns.reconfigure(config).await;
        let name = any_counter(&mut self.random);
        let (to_ms, closed) = (self.ns.latest_ms(), Closed::Up);
        let (last_write_ms, is_deleted, idle_shards) = (to_ms, false, Vec::new());
        let settled = Settlement { counter: name.clone(), to_ms, closed, last_write_ms, is_deleted, idle_shards };
        assert_eq!(stale.seal(std::slice::from_ref(&name)).await, Err(Refusal::Stale));
        assert_eq!(stale.settle(std::slice::from_ref(&settled)).await, Err(Refusal::Stale));
        assert_eq!(stale.close(&settled).await, Err(Refusal::Stale));
        assert_eq!(stale.touch(&[(name, true)]).await, Err(Refusal::Stale));
        assert_eq!(stale.due(0, 1, 1_000_000).await, Err(Refusal::Stale));
        self.stale = Some(stale);
    }

    fn stands(&mut self, job: &Job, rolled_up: &RolledUp) {
        if let RolledUp::Committed { from_ms, checkpoint } = rolled_up {
            self.leases.push(job.lease);
            assert!(*from_ms < checkpoint.exact_to_ms && checkpoint.lease == job.lease, "{checkpoint:?}");
            assert!(self.spans.insert((job.counter.clone(), *from_ms)), "two spans begin at {from_ms}: {job:?}");
            self.note_mark(&job.counter, checkpoint);
        }
    }

    /// What a rollup may have written that died since.
    async fn note_expired(&mut self, name: &CounterName) {
        let checkpoint = self.ns.checkpoint(name.as_str()).await;
        self.note_mark(name, &checkpoint);
    }

    /// The mark of a counter that was idle for long enough: nothing before it counts.
    fn note_mark(&mut self, name: &CounterName, checkpoint: &Checkpoint) {
        let after_ms = self.ns.config.expire_after_ms;
        let events = self.ns.oracle.events(name).into_values().flatten().map(|event| event.time_ms);
        let last_ms = events.filter(|time_ms| *time_ms < checkpoint.exact_to_ms).max().unwrap_or_default();
        if checkpoint.is_deleted && after_ms > 0 && last_ms + after_ms <= checkpoint.exact_to_ms {
            self.expired.insert(name.clone(), checkpoint.exact_to_ms);
        }
    }

    /// A checkpoint is the model's count at its time, whatever happened on the way to it.
    async fn check_checkpoints(&mut self, jobs: &[Job]) {
        for Job { counter: name, .. } in jobs {
            self.note_expired(name).await;
            let checkpoint = self.ns.checkpoint(name.as_str()).await;
            // That of a deleted counter is exact to its deletion, too, which no rollup need have seen.
            let deleted_ms = if checkpoint.is_deleted { checkpoint.last_write_ms + 1 } else { 0 };
            assert_eq!(
                i128::from(checkpoint.count),
                self.count(name, checkpoint.exact_to_ms.max(deleted_ms)),
                "'{name}' at {checkpoint:?}"
            );
            self.check_deleted(name).await;
            assert!(checkpoint.last_write_ms <= self.ns.oracle.last_write_ms(name), "'{name}' at {checkpoint:?}");
            // The mark of a deleted counter is as late as its deletion, which may be ahead of the clock.
            let is_sealed = checkpoint.exact_to_ms <= self.ns.latest_ms() - 500;
            assert!(is_sealed || checkpoint.is_deleted, "nothing that can still come");
        }
    }

    /// Nothing but what the log itself says is due is rolled up, and everything is exact (N9).
    async fn come_to_rest(mut self) {
        let config = self.ns.config.clone();
        // Past every due time of this configuration, past every time to which the clock was set back, and past every hold:
        // workers that died one after the other leave a counter held for longer than one due time.
        self.ns.at(self.ns.latest_ms() + HOLD_MAX_MS + 30_000);
        let store = self.ns.store.clone();
        for shard in 0..SHARDS {
            loop {
                let due = store.due(shard, 2, 60_000).await.expect("an answer");
                let jobs: Vec<Job> = due.counters.iter().map(|(name, _)| self.ns.job(name)).collect();
                for (job, result) in jobs.iter().zip(roll_up(&store, &store, &jobs).await) {
                    let rolled_up = result.expect("a rollup");
                    assert!(matches!(rolled_up, RolledUp::Committed { .. }), "{job:?}");
                    self.stands(job, &rolled_up);
                }
                if due.counters.is_empty() {
                    let is_low = config.cardinality == Cardinality::Low;
                    assert!(is_low || due.next_ms.is_none(), "something is left in shard {shard}: {due:?}");
                    assert!(due.next_ms.is_none_or(|next_ms| next_ms <= due.now_ms + 10_000), "held for ever: {due:?}");
                    break;
                }
            }
        }
        if config.archived {
            self.ns.archive_everything().await;
        }
        self.ns.store.check_crossings().await;
        for name in NAMES {
            let expected = self.count(&counter(name), u64::MAX);
            let checkpoint = self.ns.checkpoint(name).await;
            assert_eq!(i128::from(checkpoint.count), expected, "'{name}' at rest");
            let last_write_ms = self.ns.oracle.last_write_ms(&counter(name));
            assert!(checkpoint.is_deleted || checkpoint.last_write_ms == last_write_ms, "'{name}' at rest");
            self.check_deleted(&counter(name)).await;
            let pending = self.ns.pending(name).await;
            assert!(pending.iter().all(|(_, pending)| pending.windows.is_empty()), "{pending:?}");
            for (window, events) in self.ns.oracle.events(&counter(name)) {
                assert_eq!(self.ns.events(name, window).await, events, "'{name}' in {window}");
            }
            // A counter is closed only in the direction that its count requires.
            for (token, delta) in [("one more", 1), ("one less", -1)] {
                let answer = self.ns.append_one(add_now(name, token, delta)).await;
                let is_full = expected.unsigned_abs() >= COUNT_SOFT_MAX as u128 && (expected > 0) == (delta > 0);
                let expected = if is_full { Err(Refusal::Overflow) } else { counted(self.ns.now_ms()) };
                assert_eq!(answer, expected, "'{name}'");
            }
        }
    }
}
