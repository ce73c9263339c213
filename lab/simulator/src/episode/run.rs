//! One episode from its start to its end.

use super::caller::Caller;
use super::conclusion::Conclusion;
use super::faults::WRITES_LOST_MAX;
use super::plan::Plan;
use super::servers::{ServerStore, Servers};
use super::world::{Met, World};
use crate::judge::{History, Rule};
use crate::node::SimulatedRedis;
use crate::scripting::locked;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::Store;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

const CALLERS: u64 = 6;
/// After this time every request of the episode has arrived, and every caller has given up.
const SETTLED: Duration = Duration::from_secs(120);

/// The outcome of one episode.
#[derive(Debug)]
pub struct Episode {
    /// The seed, which repeats it.
    pub seed: u64,
    /// What it met.
    pub met: Met,
    /// What the judge found.
    pub findings: Vec<(Rule, String)>,
    /// The last steps, if they were wanted.
    pub trace: Vec<String>,
}

/// Runs one episode on this thread. `redis` is emptied first.
///
/// # Panics
/// If no runtime can start.
pub fn run(seed: u64, redis: &Arc<SimulatedRedis>, is_traced: bool) -> Episode {
    redis.reset(2 * WRITES_LOST_MAX);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let episode = runtime.block_on(play(seed, redis, is_traced));
    tallystone_link::set_virtual_clocks(None);
    episode
}

async fn play(seed: u64, redis: &Arc<SimulatedRedis>, is_traced: bool) -> Episode {
    let plan = Arc::new(Plan::of(seed));
    let world = Arc::new(World::new(redis.clone(), seed, &plan, is_traced));
    let servers = Arc::new(Servers::new(&world));
    let history = Arc::new(Mutex::new(History::default()));
    create(&servers, &plan, &history).await;
    world.set_faults(true);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        callers.spawn(Caller::new(number, seed, &world, &servers, &plan, &history).run());
    }
    while callers.join_next().await.is_some() {}
    world.set_faults(false);
    sleep(SETTLED).await;
    // What the settling has let expire belongs to the history.
    let met = world.met();
    // A connection that broke is noticed by the next call over it.
    drop(servers.call(0, async |store| store.depth(plan.first(0), None).await).await);
    let conclusion = Conclusion { servers: &servers, history: &history };
    conclusion.read(&plan).await;
    let journal = world.take_journal();
    conclusion.end_changes(&plan).await;
    let mut history = std::mem::take(&mut *locked(&history));
    (history.written, history.forked) = (journal.written, journal.forked);
    history.failures.extend(journal.failures);
    let findings =
        Rule::ALL.into_iter().flat_map(|rule| rule.findings(&history).into_iter().map(move |text| (rule, text)));
    Episode { seed, met, findings: findings.collect(), trace: world.take_trace() }
}

async fn create(servers: &Servers, plan: &Plan, history: &Mutex<History>) {
    for (first, config) in &plan.queues {
        let create = async move |store: Arc<ServerStore>| store.create_queue(&first.queue, config.clone()).await;
        if let Err(refusal) = servers.call(0, create).await {
            locked(history).failures.push(format!("the queue cannot be created: {refusal}"));
        }
    }
}
