//! Simulated failovers: many episodes, each from one seed, and the judge's rules over all of them.
//!
//! `TALLYSTONE_SIMULATOR_SEED` repeats one episode and prints its last steps; `TALLYSTONE_SIMULATOR_FAILOVERS` sets the
//! number of failovers, `TALLYSTONE_TEST_LONG` a large one. With `TALLYSTONE_SIMULATOR_SHARDS` there are only episodes in which numbers of
//! shards change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_simulator::SimulatedRedis;
use tallystone_simulator::episode::{self, Met};
use tallystone_simulator::judge::Rule;

const FAILOVERS: u64 = 10_000;
const FAILOVERS_LONG: u64 = 100_000;
const SHARDS: &str = "TALLYSTONE_SIMULATOR_SHARDS";
const SEED: &str = "TALLYSTONE_SIMULATOR_SEED";
const TEST: &str = "x8_simulated_failovers_break_no_rule";
/// The rules that the queue breaks when a failover loses writes: a transition that is lost and the one that replaces it have
/// the same version (docs/decisions/0076). The test fails if an entry has become wrong.
const BROKEN: [Rule; 1] = [Rule::EventVersions];

/// What many episodes have met and found: of each rule, how many episodes broke it, and the first one.
#[derive(Default)]
struct Campaign {
    met: Met,
    episodes: u64,
    broken: BTreeMap<Rule, (u64, u64, String)>,
}

impl Campaign {
    fn add(&mut self, episode: episode::Episode) {
        self.episodes += 1;
        self.met.add(&episode.met);
        let mut last = None;
        for (rule, text) in episode.findings {
            if last.replace(rule) != Some(rule) {
                self.broken.entry(rule).or_insert((0, episode.seed, text)).0 += 1;
            }
        }
    }

    fn merge(&mut self, other: Campaign) {
        self.episodes += other.episodes;
        self.met.add(&other.met);
        for (rule, (count, seed, text)) in other.broken {
            let (sum, first, shown) = self.broken.entry(rule).or_insert((0, seed, text.clone()));
            *sum += count;
            if seed < *first {
                (*first, *shown) = (seed, text);
            }
        }
    }
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', not a number")))
}

#[test]
fn x8_simulated_failovers_break_no_rule() {
    if let Some(seed) = setting(SEED) {
        return repeat(seed);
    }
    let long = std::env::var_os("TALLYSTONE_TEST_LONG").is_some();
    let failovers = setting("TALLYSTONE_SIMULATOR_FAILOVERS").unwrap_or(if long { FAILOVERS_LONG } else { FAILOVERS });
    let first_seed = u64::from(rand::random::<u32>()) << 24;
    let (next, done) = (AtomicU64::new(first_seed), AtomicU64::new(0));
    let only_shards = std::env::var_os(SHARDS).is_some();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = std::time::Instant::now();
    let campaign = std::thread::scope(|scope| {
        let run = || {
            let redis = Arc::new(SimulatedRedis::new(0));
            let mut campaign = Campaign::default();
            while done.load(Ordering::Relaxed) < failovers {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if only_shards && !episode::changes_shards(seed) {
                    continue;
                }
                let episode = episode::run(seed, &redis, false);
                done.fetch_add(episode.met.failovers, Ordering::Relaxed);
                campaign.add(episode);
            }
            campaign
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let mut all = Campaign::default();
        for campaign in running {
            all.merge(campaign.join().expect("an episode ends"));
        }
        all
    });
    let Campaign { met, episodes, broken } = campaign;
    println!("{episodes} episodes in {:.1} s: {met:?}", began.elapsed().as_secs_f64());
    let mut wrong = String::new();
    for (rule, (count, seed, text)) in &broken {
        let line = format!(
            "{rule:?}: {count} episodes, the first one {seed}:\n    {text}\n    repeat it: {SEED}={seed} cargo test \
             --profile checked --workspace --test episodes {TEST} -- --nocapture\n"
        );
        println!("{line}");
        if !BROKEN.contains(rule) {
            wrong += &line;
        }
    }
    if failovers >= FAILOVERS {
        for rule in BROKEN.iter().filter(|rule| !broken.contains_key(rule)) {
            wrong += &format!("{rule:?} is kept: it is no longer one of the broken rules\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn x8_a_seed_repeats_its_episode() {
    let redis = Arc::new(SimulatedRedis::new(0));
    for seed in 0..20 {
        let [first, second] = [true, true].map(|is_traced| episode::run(seed, &redis, is_traced));
        assert_eq!((first.met, &first.findings), (second.met, &second.findings), "{SEED}={seed}");
        let differs = first.trace.iter().zip(&second.trace).find(|(first, second)| first != second);
        assert!(differs.is_none() && first.trace.len() == second.trace.len(), "{SEED}={seed}: {differs:?}");
    }
}

fn repeat(seed: u64) {
    let episode = episode::run(seed, &Arc::new(SimulatedRedis::new(0)), true);
    println!("{}\n{:?}", episode.trace.join("\n"), episode.met);
    for (rule, text) in &episode.findings {
        println!("{rule:?}: {text}");
    }
    assert!(episode.findings.is_empty(), "{SEED}={seed}");
}
