//! Random programs: adds in batches, repetitions, late and early times, times by the store's own clock, clears, rollups of
//! many that die between any two steps or overlap under earlier and later leases, a namespace that is changed, scripts
//! that are forgotten, a clock that the test moves and sets back. Every answer is the model's; every checkpoint is the
//! oracle's count at its time; and when the dirty ones have been rolled up, nothing is pending, every count is exact and
//! every event is read back (N3, N5 to N12). Every reply of Redis is also the oracle's (`compared`).
//!
//! `TALLYSTONE_PROPERTY_SEED` repeats a failure.

use super::draw::{self, Deltas, NAMES, any_counter, one, some_counters};
use super::interrupted::{Dying, Last, Stopped};
use super::*;
use crate::property::setting;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use tallystone_counters::Settlement;
use tallystone_counters::log::Closed;
use tallystone_counters::namespace::Cardinality;
use tallystone_counters::read::accurate;
use tallystone_counters::rollup::COUNT_SOFT_MAX;

const PROGRAMS: u64 = 60;
const PROGRAMS_LONG: u64 = 2_000;
const STEPS: usize = 60;

#[tokio::test]
async fn n5_random_programs_count_what_the_model_counts() {
    let is_long = std::env::var_os("TALLYSTONE_TEST_LONG").is_some();
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    // Not the shared one: the programs flush its scripts.
    let redis = Arc::new(TestRedis::start().await);
    for seed in (first_seed..).take(if is_long { PROGRAMS_LONG } else { PROGRAMS } as usize) {
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
    /// A server that has not heard of the last change.
    stale: Option<Compared>,
    leases: Vec<LeaseOrder>,
    /// Where the spans of committed rollups begin: no two may begin at the same time.
    spans: BTreeSet<(CounterName, u64)>,
}

impl Program {
    async fn new(seed: u64, redis: Arc<TestRedis>) -> Program {
        let mut random = StdRng::seed_from_u64(seed);
        let ns = TestNamespace::on(redis, "exactness", draw::config(&mut random)).await;
        let deltas = one(&mut random, &[Deltas::Mixed, Deltas::AroundWide, Deltas::Extreme]);
        let spans = BTreeSet::new();
        Program { random, ns, deltas, sent: Vec::new(), stale: None, leases: Vec::new(), spans }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..20) {
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
            _ => {
                let mut connection = self.ns.redis.connection().await;
                redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("forgotten");
            }
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
                answers.iter().all(|answer| matches!(answer, Err(Refusal::Stale | Refusal::Overflow))),
                "{answers:?}"
            );
        }
        let answers = self.ns.store.append(&events).await;
        for (event, answer) in events.into_iter().zip(answers) {
            self.sent.push((event, answer.ok().map(|appended| appended.time_ms)));
        }
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
            RolledUp::Nothing => {}
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
            assert_eq!(i128::from(count), self.ns.oracle.count(name, u64::MAX), "an accurate read of '{name}'");
        }
        for (job, result) in jobs.iter().zip(results) {
            self.stands(job, &result.expect("a rollup"));
        }
    }

    /// The server that has not heard of it can do nothing any more.
    async fn change_the_namespace(&mut self) {
        let config = draw::changed(&mut self.random, &self.ns.config);
        let stale = self.ns.store.clone();
        self.ns.reconfigure(config).await;
        let name = any_counter(&mut self.random);
        let settled = Settlement {
            counter: name.clone(),
            to_ms: self.ns.latest_ms(),
            closed: Closed::Up,
            idle_shards: Vec::new(),
        };
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
        }
    }

    /// A checkpoint is the model's count at its time, whatever happened on the way to it.
    async fn check_checkpoints(&self, jobs: &[Job]) {
        for Job { counter: name, .. } in jobs {
            let checkpoint = self.ns.checkpoint(name.as_str()).await;
            assert_eq!(
                i128::from(checkpoint.count),
                self.ns.oracle.count(name, checkpoint.exact_to_ms),
                "'{name}' at {checkpoint:?}"
            );
            assert!(checkpoint.last_write_ms <= self.ns.oracle.last_write_ms(name), "'{name}' at {checkpoint:?}");
            assert!(checkpoint.exact_to_ms <= self.ns.latest_ms() - 500, "nothing that can still come");
        }
    }

    /// Nothing but what the log itself says is due is rolled up, and everything is exact (N9).
    async fn come_to_rest(mut self) {
        let config = self.ns.config.clone();
        // Past every due time of this configuration, and past every time to which the clock was set back.
        self.ns.at(self.ns.latest_ms() + 30_000);
        let store = self.ns.store.clone();
        for shard in 0..SHARDS {
            loop {
                let due = store.due(shard, 2, 60_000).await.expect("an answer");
                let jobs: Vec<Job> = due.counters.iter().map(|(name, _)| self.ns.job(name)).collect();
                for (job, result) in jobs.iter().zip(roll_up(&store, &store, &jobs).await) {
                    assert!(matches!(result.expect("a rollup"), RolledUp::Committed { .. }), "{job:?}");
                }
                if due.counters.is_empty() {
                    let is_low = config.cardinality == Cardinality::Low;
                    assert!(is_low || due.next_ms.is_none(), "something is left in shard {shard}: {due:?}");
                    assert!(due.next_ms.is_none_or(|next_ms| next_ms <= due.now_ms + 10_000), "held for ever: {due:?}");
                    break;
                }
            }
        }
        for name in NAMES {
            let expected = self.ns.oracle.count(&counter(name), u64::MAX);
            let checkpoint = self.ns.checkpoint(name).await;
            assert_eq!(i128::from(checkpoint.count), expected, "'{name}' at rest");
            assert_eq!(checkpoint.last_write_ms, self.ns.oracle.last_write_ms(&counter(name)), "'{name}' at rest");
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
