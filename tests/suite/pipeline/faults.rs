//! kill -9 of everything, in turn and at random, under load. `TALLYSTONE_CRASH_SEED` repeats the choices of a run,
//! `TALLYSTONE_TEST_LONG` makes the random one ten times as long.

use super::house::House;
use super::judge::{caught_up, index_equals_redis, traces_are_whole};
use crate::crash::load::{KEY, Load, Phase};
use crate::histories::history::What;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tallystone_client::QueueConfig;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long a step of the load may take, whatever is away.
const SOON: Duration = Duration::from_secs(90);
/// What Q19 promises to outlast, and more than what any buffer of a client would hide.
const KAFKA_DOWN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const ROUNDS: usize = 8;
/// Longer than a call is repeated while its server is away: what it completes must not be collected before it is told.
const COLLECTED_AFTER_MS: u64 = 20_000;

/// Producers and workers on two queues, one of which collects what has ended within a second.
struct Loads {
    loads: Vec<Load>,
    phase: watch::Sender<Phase>,
    tasks: JoinSet<()>,
}

impl Loads {
    /// `via`: the servers that are called.
    async fn start(house: &House, via: &[usize], rng: &mut StdRng) -> Loads {
        let (phase, phases) = watch::channel(Phase::Load);
        let (mut loads, mut tasks) = (Vec::new(), JoinSet::new());
        for (name, exclusive, retention_ms) in [("kept", true, 3_600_000), ("collected", false, COLLECTED_AFTER_MS)] {
            let config = if exclusive { QueueConfig::exclusive(KEY) } else { QueueConfig::simple() };
            let config = QueueConfig { max_attempts: Some(1_000), terminal_retention_ms: Some(retention_ms), ..config };
            house.machines.clients[via[0]].create_queue(name, config).await.expect("a new queue");
            let load = Load::new(name, exclusive, &house.machines.clients, &phases);
            for via in via {
                tasks.spawn(load.clone().produce(*via, rng.random()));
                tasks.spawn(load.clone().work(*via, rng.random()));
                tasks.spawn(load.clone().stream(*via, rng.random()));
            }
            loads.push(load);
        }
        Loads { loads, phase, tasks }
    }

    /// Waits until every queue has completed so many more: whatever is away, the queue goes on.
    async fn goes_on(&self, more: usize) {
        for load in &self.loads {
            let mut completed = load.completed.subscribe();
            let target = *completed.borrow() + more;
            let reached = timeout(SOON, completed.wait_for(|count| *count >= target)).await;
            assert!(reached.is_ok_and(|reached| reached.is_ok()), "the load stands still in {}", load.queue);
        }
    }

    /// Ends the load; a call that failed fails the test here. Answers the queues and all ids.
    async fn end(mut self, house: &House, via: usize) -> Vec<(String, Vec<String>)> {
        self.phase.send_replace(Phase::Done);
        let ended = async {
            while let Some(task) = self.tasks.join_next().await {
                task.expect("no call of the queue fails");
            }
        };
        timeout(SOON, ended).await.expect("the load ends");
        let client = house.machines.clients[via].with_retry_for(SOON);
        let collected = async {
            while client.depth("collected", None).await.expect("a depth").completed > 0 {
                sleep(POLL).await;
            }
        };
        timeout(SOON, collected).await.expect("what has ended is collected");
        let ids = |load: &Load| {
            let accepted = load.recorder.history().into_iter().filter_map(|op| match op.what {
                What::Enqueued { id, .. } => Some(id),
                _ => None,
            });
            accepted.collect()
        };
        self.loads.iter().map(|load| (load.queue.clone(), ids(load))).collect()
    }
}

fn rng() -> StdRng {
    let seed = match std::env::var("TALLYSTONE_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("TALLYSTONE_CRASH_SEED is a number"),
        Err(_) => rand::random::<u32>(),
    };
    println!("TALLYSTONE_CRASH_SEED={seed}");
    StdRng::seed_from_u64(u64::from(seed))
}

async fn judge(house: &House, via: usize, queues: Vec<(String, Vec<String>)>) {
    let client = house.machines.clients[via].with_retry_for(Duration::from_secs(60));
    caught_up(&client).await;
    index_equals_redis(&house.machines.servers[via].url(), 100).await;
    for (queue, ids) in queues {
        traces_are_whole(&client, &queue, ids).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_each_part_may_die_and_the_queue_does_not_notice() {
    let mut house = House::start(Duration::ZERO).await;
    // Only the second server is called, and never killed: the first one has the relay's turn, and is.
    let loads = Loads::start(&house, &[1], &mut rng()).await;
    loads.goes_on(50).await;

    println!("Kafka dies");
    house.kafka.kill().await;
    loads.goes_on(100).await;
    house.kafka.start_again().await;
    loads.goes_on(50).await;

    println!("the indexer dies");
    house.indexers[0].kill().await;
    loads.goes_on(100).await;
    house.indexers[0].start().await;

    println!("a second indexer joins, and the first dies");
    house.indexers[1].start().await;
    loads.goes_on(100).await;
    house.indexers[0].kill().await;
    loads.goes_on(100).await;
    house.indexers[0].start().await;

    println!("Elasticsearch dies");
    house.elasticsearch.kill().await;
    loads.goes_on(100).await;
    house.elasticsearch.start_again().await;
    loads.goes_on(50).await;

    println!("the relay dies");
    house.machines.servers[0].kill().await;
    loads.goes_on(100).await;
    house.machines.servers[0].restart().await;

    println!("Elasticsearch takes no writes");
    house.read_only(true).await;
    loads.goes_on(100).await;
    house.read_only(false).await;

    println!("Kafka is down for a minute");
    house.kafka.kill().await;
    let back_at = Instant::now() + KAFKA_DOWN;
    loads.goes_on(200).await;
    tokio::time::sleep_until(back_at).await;
    house.kafka.start_again().await;
    loads.goes_on(50).await;

    let queues = loads.end(&house, 1).await;
    judge(&house, 1, queues).await;
}

/// What dies in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Kafka,
    Elasticsearch,
    Indexer(usize),
    Server(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_whatever_is_killed_every_transition_is_found_once() {
    use Victim::*;
    let mut rng = rng();
    let rounds = if std::env::var_os("TALLYSTONE_TEST_LONG").is_some() { 10 * ROUNDS } else { ROUNDS };
    // Calls of a killed server are repeated until it is back.
    let mut house = House::start(Duration::from_secs(90)).await;
    house.indexers[1].start().await;
    let loads = Loads::start(&house, &[0, 1], &mut rng).await;
    for round in 0..rounds {
        loads.goes_on(rng.random_range(1..60)).await;
        let all = [Kafka, Elasticsearch, Indexer(0), Indexer(1), Server(0), Server(1)];
        let count = rng.random_range(1..=2);
        let victims: Vec<Victim> = all.choose_multiple(&mut rng, count).copied().collect();
        println!("round {round}: {victims:?}");
        for victim in &victims {
            match *victim {
                Kafka => house.kafka.kill().await,
                Elasticsearch => house.elasticsearch.kill().await,
                Indexer(at) => house.indexers[at].kill().await,
                Server(at) => house.machines.servers[at].kill().await,
            }
        }
        sleep(Duration::from_millis(rng.random_range(0..2_000))).await;
        for victim in victims {
            match victim {
                Kafka => house.kafka.start_again().await,
                Elasticsearch => house.elasticsearch.start_again().await,
                Indexer(at) => house.indexers[at].start().await,
                Server(at) => house.machines.servers[at].restart().await,
            }
        }
    }
    let queues = loads.end(&house, 0).await;
    judge(&house, 0, queues).await;
}

/// The judge itself: what is not in the index, and what differs there, is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_history_check_names_what_is_missing_and_what_differs() {
    use crate::system::program;
    use elasticsearch::http::Method;
    use elasticsearch::http::headers::HeaderMap;
    use elasticsearch::http::transport::Transport;

    let house = House::start(Duration::from_secs(30)).await;
    let client = &house.machines.clients[0];
    let messages = (0..20).map(|n| tallystone_client::NewMessage::new(format!("m{n:02}"), "")).collect();
    client.enqueue("q", messages).await.expect("an Enqueue");
    caught_up(client).await;
    let raw = Transport::single_node(&house.elasticsearch.address()).expect("a transport");
    let send = async |path: &str, body: serde_json::Value| {
        let sent = raw.send(Method::Post, path, HeaderMap::new(), None::<&()>, Some(body.to_string()), None).await;
        let text = sent.expect("an answer").text().await.expect("text");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let find = async |index: &str, id: &str| {
        let query = serde_json::json!({ "query": { "term": { "id": id } } });
        let found = send(&format!("tallystone-{index}/_search"), query).await;
        found["hits"]["hits"][0].clone()
    };
    // Behind the indexer's back: one message gone, one of another worker, one transition lost.
    let encoded = |hit: &serde_json::Value| hit["_id"].as_str().expect("an id").replace('/', "%2F");
    let delete = async |index: &str, hit: &serde_json::Value| {
        let name = hit["_index"].as_str().unwrap_or(index);
        let path = format!("{name}/_doc/{}?refresh=true", encoded(hit));
        let sent = raw.send(Method::Delete, &path, HeaderMap::new(), None::<&()>, None::<String>, None).await;
        assert!(sent.expect("an answer").status_code().is_success());
    };
    delete("current", &find("current", "m03").await).await;
    let mut changed = find("current", "m07").await;
    changed["_source"]["worker"] = "somebody else".into();
    send(&format!("tallystone-current/_doc/{}?refresh=true", encoded(&changed)), changed["_source"].clone()).await;
    delete("historic", &find("historic-*", "m11").await).await;

    let server = house.machines.servers[0].url();
    let checked =
        program::run(program::command(&["history", "check", "--traces", "--json", "--server", &server]), "").await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let report = checked.json().remove(0);
    let found = report["differences"].as_array().expect("a list").iter();
    let mut named: Vec<&str> = found.filter_map(|found| found["id"].as_str()).collect();
    named.sort();
    assert_eq!(named, ["m03", "m07", "m11"], "{report}");
}
