//! One episode from its start to its end.

use super::caller::Caller;
use super::faults::WRITES_LOST_MAX;
use super::servers::Servers;
use super::world::{Met, World};
use crate::judge::{EXCLUSIVITY_KEY, History, Rule};
use crate::node::SimulatedRedis;
use crate::scripting::locked;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::{Backoff, QueueConfig, QueueName, QueueType, Refusal, Shard, State, Store};
use tallystone_server::store::RedisStore;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Calls of scripts in one episode.
const SCRIPT_CALLS: u64 = 200;
const CALLERS: u64 = 6;
/// After this time every request of the episode has arrived, and every caller has given up.
const SETTLED: Duration = Duration::from_secs(120);
/// Entries on a page of the last reading.
const PAGE: usize = 1_000;
/// Steps of the scrubber for one queue.
const CHECKS_MAX: usize = 1_000;

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
    let shards: Arc<[Shard]> = ["exclusive", "simple"].map(shard).into();
    let world = Arc::new(World::new(redis.clone(), seed, &shards, is_traced));
    let servers = Arc::new(Servers::new(&world));
    let history = Arc::new(Mutex::new(History::default()));
    create(&servers, &shards, &history).await;
    world.set_faults(true);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        callers.spawn(Caller::new(number, seed, &world, &servers, &shards, &history).run(SCRIPT_CALLS));
    }
    while callers.join_next().await.is_some() {}
    world.set_faults(false);
    sleep(SETTLED).await;
    // What the settling has let expire belongs to the history.
    let met = world.met();
    // A connection that broke is noticed by the next call over it.
    drop(servers.call(0, async |store| store.depth(&shards[0], None).await).await);
    for shard in shards.iter() {
        if let Err(refusal) = read(&servers, shard, &history).await {
            locked(&history).failures.push(format!("the last reading of {}: {refusal}", shard.queue));
        }
    }
    let mut history = std::mem::take(&mut *locked(&history));
    let journal = world.take_journal();
    (history.written, history.forked) = (journal.written, journal.forked);
    history.failures.extend(journal.failures);
    let findings =
        Rule::ALL.into_iter().flat_map(|rule| rule.findings(&history).into_iter().map(move |text| (rule, text)));
    Episode { seed, met, findings: findings.collect(), trace: world.take_trace() }
}

fn shard(queue: &str) -> Shard {
    Shard::first(&QueueName::parse("queue", queue).expect("a valid name"))
}

async fn create(servers: &Servers, shards: &[Shard], history: &Mutex<History>) {
    let types = [QueueType::Exclusive { key: EXCLUSIVITY_KEY.to_owned() }, QueueType::Simple];
    for (shard, queue_type) in shards.iter().zip(types) {
        let config = QueueConfig {
            queue_type,
            lease_ms: 2_000,
            terminal_retention_ms: 1_500,
            retry_backoff: Backoff::default(),
            ..QueueConfig::default()
        };
        let create = async move |store: Arc<RedisStore>| store.create_queue(&shard.queue, config).await;
        if let Err(refusal) = servers.call(0, create).await {
            locked(history).failures.push(format!("the queue cannot be created: {refusal}"));
        }
    }
}

/// Reads what is left of a queue, and lets the scrubber check it.
async fn read(servers: &Servers, shard: &Shard, history: &Mutex<History>) -> Result<(), Refusal> {
    servers.call(0, async |store| scrub(&store, shard, history).await).await?;
    for state in State::ALL {
        let mut cursor = String::new();
        loop {
            let from = &cursor;
            let list = async |store: Arc<RedisStore>| store.list_messages(shard, state, from, PAGE).await;
            let page = servers.call(0, list).await?;
            let mut history = locked(history);
            for message in page.items {
                if history.left.insert((shard.clone(), message.id.clone()), message.state).is_some() {
                    history.violations.push(format!("'{}' is listed twice", message.id));
                }
            }
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

async fn scrub(store: &RedisStore, shard: &Shard, history: &Mutex<History>) -> Result<(), Refusal> {
    let mut cursor = String::new();
    for _ in 0..CHECKS_MAX {
        let (_, page) = store.check(shard, &cursor).await?;
        locked(history).violations.extend(page.items.iter().map(|violation| format!("{violation:?}")));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(());
        }
    }
    Err(Refusal::Internal("the scrubber does not end".to_owned()))
}
