//! Random programs: adds, repetitions, late and early times, clears, rollups that die between any two steps or overlap,
//! a clock that the test moves. Every answer is the model's; every checkpoint is the model's count at its time; and when
//! the dirty ones have been rolled up, nothing is pending and every count is exact (N3, N5 to N9).
//!
//! `TALLYSTONE_PROPERTY_SEED` repeats a failure.

use super::interrupted::{Dying, Stopped};
use super::model::Model;
use super::*;
use crate::property::setting;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use tallystone_counters::Checkpoints;
use tallystone_counters::read::accurate;
use tallystone_counters::rollup::{RolledUp, roll_up};

const PROGRAMS: u64 = 60;
const PROGRAMS_LONG: u64 = 2_000;
const STEPS: usize = 40;
const NAMES: [&str; 5] = ["a", "b", "route/EWR-IAH", "ü", "hot"];

#[tokio::test]
async fn n5_random_programs_count_what_the_model_counts() {
    let is_long = std::env::var_os("TALLYSTONE_TEST_LONG").is_some();
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    for seed in (first_seed..).take(if is_long { PROGRAMS_LONG } else { PROGRAMS } as usize) {
        println!("TALLYSTONE_PROPERTY_SEED={seed}");
        let mut program = Program::new(seed).await;
        for _ in 0..STEPS {
            program.step().await;
        }
        program.come_to_rest().await;
    }
}

struct Program {
    random: StdRng,
    place: Place,
    model: Model,
    told: Vec<NewEvent>,
    /// Deltas as large as a counter can hold: some are refused.
    is_extreme: bool,
}

impl Program {
    async fn new(seed: u64) -> Program {
        let mut random = StdRng::seed_from_u64(seed);
        let config = NamespaceConfig {
            buckets_per_id: random.random_range(1..=8),
            seconds_per_bucket: *[1, 7, 600].choose(&mut random).expect("some"),
            seconds_per_slice: 600 * 7,
            accept_limit_ms: *[500, 5_000].choose(&mut random).expect("some"),
            coalesce_ms: *[0, 1_000, 10_000].choose(&mut random).expect("some"),
            close_after_ms: 60_000,
            ..NamespaceConfig::default()
        };
        let place = Place::new("exactness", config).await;
        let is_extreme = random.random_ratio(1, 3);
        Program { model: Model::new(&place.config), random, place, told: Vec::new(), is_extreme }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..10) {
            0..5 => self.append().await,
            5 => {
                let ms = *[1, 100, 700, 3_000, 40_000].choose(&mut self.random).expect("some");
                self.place.pass(self.random.random_range(0..=ms));
            }
            6 | 7 => self.roll_up_what_is_due().await,
            8 => self.roll_up_twice_at_once().await,
            _ => {
                let name = self.any_counter();
                let expected = self.model.count(&name, u64::MAX);
                let (count, _) = accurate(&self.place.store, &self.place.store, &name).await.expect("a count");
                assert_eq!(count, expected, "an accurate read of '{name}'");
            }
        }
    }

    fn any_counter(&mut self) -> CounterName {
        counter(NAMES.choose(&mut self.random).expect("some"))
    }

    fn any_event(&mut self) -> NewEvent {
        if let Some(told) = self.told.iter().choose(&mut self.random).filter(|_| self.random.random_ratio(1, 3)) {
            let mut again = told.clone();
            if self.random.random_ratio(1, 8) {
                again.change = Change::Add(self.random.random_range(-3..=3));
            }
            return again;
        }
        let (now_ms, limit_ms) = (self.place.now_ms(), self.place.config.accept_limit_ms);
        let time_ms = match self.random.random_range(0..6) {
            0 => now_ms,
            1 => now_ms - limit_ms,
            2 => self.random.random_range(now_ms - limit_ms - 3..=now_ms - limit_ms + 3),
            3 => now_ms + self.random.random_range(998..=1_002),
            _ => self.random.random_range(now_ms - limit_ms..=now_ms),
        };
        let change = match self.random.random_range(0..12) {
            0 => Change::Clear,
            _ if self.is_extreme => {
                let most = ((1_i64 << 62) - 1) / i64::from(self.place.config.buckets_per_id);
                let size = *[most, most - 1, most / 2, 1 << 55, 300, 1].choose(&mut self.random).expect("some");
                Change::Add(if self.random.random_ratio(2, 3) { size } else { -size })
            }
            1 => Change::Add(self.random.random_range(-(1 << 55)..=1 << 55)),
            _ => Change::Add(self.random.random_range(-300..=300)),
        };
        NewEvent { counter: self.any_counter(), token: any_token(&mut self.random), time_ms, change }
    }

    async fn append(&mut self) {
        let count = *[1, 2, 5, 150].choose(&mut self.random).expect("some");
        let mut events: Vec<NewEvent> = (0..count).map(|_| self.any_event()).collect();
        if count == 150 {
            // One counter, one moment: slots are laid out anew.
            for event in &mut events {
                (event.counter, event.time_ms) = (counter("hot"), self.place.now_ms());
            }
        }
        let now_ms = self.place.now_ms();
        let answers = self.place.store.append(&events).await;
        // One after the other: what is refused for want of room is not there for those after it.
        for (event, answer) in events.iter().zip(answers) {
            let expected = self.model.append(event, now_ms);
            if self.is_extreme && answer == Err(Refusal::Overflow) && expected == Ok(Appended::Counted) {
                self.model.forget(event);
            } else {
                assert_eq!(answer, expected, "{event:?} at {now_ms}");
            }
        }
        self.told.extend(events);
    }

    /// As workers do, some of which die on the way.
    async fn roll_up_what_is_due(&mut self) {
        for shard in 0..self.place.store.shards() {
            let (due, _) = self.place.store.due(shard, 100, 2_000).await.expect("an answer");
            for name in due {
                let lease = self.place.lease();
                let (calls, last_happens) = (self.random.random_range(1..10), self.random.random());
                let dying = Dying::new(&self.place.store, calls, last_happens);
                if let Ok(rolled_up) = roll_up(&dying, &dying, &name, lease).await {
                    assert_ne!(rolled_up, RolledUp::Lost, "nobody else is there");
                }
                self.look_at(&name).await;
            }
        }
    }

    /// A worker is stopped before its commit; another rolls up meanwhile, under a later lease or an earlier one.
    async fn roll_up_twice_at_once(&mut self) {
        let name = self.any_counter();
        let mut leases = [self.place.lease(), self.place.lease()];
        if self.random.random() {
            leases.reverse();
        }
        let [of_first, of_second] = leases;
        let pass_ms = self.random.random_range(0..=2_000);
        let (place, store) = (&self.place, &self.place.store);
        let stopped = Stopped::new(store);
        let first = roll_up(store, &stopped, &name, of_first);
        let second = async {
            // Where there is nothing to commit, the first one ends without it.
            let _ = stopped.is_there.acquire().await.expect("open");
            place.pass(pass_ms);
            let second = roll_up(store, store, &name, of_second).await.expect("a rollup");
            stopped.go_on.add_permits(1);
            second
        };
        tokio::pin!(first, second);
        let (first, second) = tokio::select! {
            biased;
            first = &mut first => (first.expect("a rollup"), None),
            second = &mut second => (first.await.expect("a rollup"), Some(second)),
        };
        match second {
            None => assert_eq!(first, RolledUp::Nothing),
            Some(second) => {
                assert!(matches!(second, RolledUp::Committed(_)), "{second:?}");
                assert_eq!(first, RolledUp::Lost);
            }
        }
        self.look_at(&name).await;
    }

    /// A checkpoint is the model's count at its time, whatever happened on the way to it.
    async fn look_at(&self, name: &CounterName) {
        let checkpoint = self.place.store.read(name).await.expect("a checkpoint");
        assert_eq!(checkpoint.count, self.model.count(name, checkpoint.exact_to_ms), "'{name}' at {checkpoint:?}");
    }

    /// Nothing but what the log itself says is due is rolled up, and everything is exact (N9).
    async fn come_to_rest(mut self) {
        let config = &self.place.config;
        self.place.pass(config.accept_limit_ms + config.coalesce_ms + 5_000);
        for shard in 0..self.place.store.shards() {
            loop {
                let (due, next_ms) = self.place.store.due(shard, 2, 60_000).await.expect("an answer");
                for name in &due {
                    let lease = self.place.lease();
                    let rolled_up = roll_up(&self.place.store, &self.place.store, name, lease).await;
                    assert!(!matches!(rolled_up.expect("a rollup"), RolledUp::Lost));
                }
                if due.is_empty() {
                    assert_eq!(next_ms, None, "something is left in shard {shard}");
                    break;
                }
            }
        }
        for name in NAMES.map(counter) {
            let expected = self.model.count(&name, u64::MAX);
            assert_eq!(self.place.store.read(&name).await.expect("a checkpoint").count, expected, "'{name}' at rest");
            let pending = self.place.store.pending(&name).await.expect("pending");
            assert!(pending.iter().all(|(_, pending)| pending.granules.is_empty()), "{pending:?}");
        }
    }
}

fn any_token(random: &mut StdRng) -> Token {
    let length = *[1, 3, 36, 64].choose(random).expect("some");
    Token::parse((0..length).map(|_| random.random_range('a'..='z')).collect::<String>()).expect("a token")
}
