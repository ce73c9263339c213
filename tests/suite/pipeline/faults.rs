//! kill -9 of every process, one after the other and at random, under load. `TALLYSTONE_CRASH_SEED` repeats the choices
//! of a run, `TALLYSTONE_TEST_LONG` makes the random test much longer.

use super::checks::{catches_up, index_equals_redis, traces_are_whole};
use super::indexer::any_ended;
use super::installation::Installation;
use crate::crash::load::{Load, Phase, queue_config};
use crate::histories::history::What;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tallystone_client::QueueConfig;
use tallystone_tests::amount;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long a step of the load may take during an outage.
const SOON: Duration = Duration::from_secs(240);
/// The outage that Q19 promises to survive; no client buffers for this long.
const KAFKA_DOWN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const ROUNDS: usize = 3;
const ROUNDS_LONG: usize = 50;
/// The services start for most of the time. A load without pauses would use the processors that they need.
const PAUSE: Duration = Duration::from_millis(600);
/// Longer than a client retries a call while its server is down: a completed message must not be collected before the
/// client has the response.
const COLLECTED_AFTER_MS: u64 = 20_000;

/// Producers and workers on two queues, one of which collects ended messages soon.
struct Loads {
    loads: Vec<Load>,
    phase: watch::Sender<Phase>,
    tasks: JoinSet<()>,
}

impl Loads {
    /// Starts the load; `via` are the servers that it calls.
    async fn start(installation: &Installation, via: &[usize], rng: &mut StdRng) -> Loads {
        let (phase, phases) = watch::channel(Phase::Load);
        let (mut loads, mut tasks) = (Vec::new(), JoinSet::new());
        for (name, exclusive, retention_ms) in [("kept", true, 3_600_000), ("collected", false, COLLECTED_AFTER_MS)] {
            let config = QueueConfig { terminal_retention_ms: Some(retention_ms), ..queue_config(exclusive) };
            installation.machines.clients[via[0]].create_queue(name, config).await.expect("a new queue");
            let load = Load::new(name, exclusive, &installation.machines.clients, &phases)
                .retention(Duration::from_millis(retention_ms))
                .pause(PAUSE);
            for via in via {
                tasks.spawn(load.clone().produce(*via, rng.random()));
                tasks.spawn(load.clone().work(*via, rng.random()));
                tasks.spawn(load.clone().stream(*via, rng.random()));
            }
            loads.push(load);
        }
        Loads { loads, phase, tasks }
    }

    /// Waits until every queue has completed this many more messages. Outages of history must not stop the queue.
    async fn makes_progress(&self, more: usize) {
        for load in &self.loads {
            let mut completed = load.completed.subscribe();
            let target = *completed.borrow() + more;
            let reached = timeout(SOON, completed.wait_for(|count| *count >= target)).await;
            assert!(reached.is_ok_and(|reached| reached.is_ok()), "the load hangs in {}", load.queue);
        }
    }

    /// Ends the load; a call that failed fails the test here. Answers the queues and all ids.
    async fn end(mut self, installation: &Installation, via: usize) -> Vec<(String, Vec<String>)> {
        self.phase.send_replace(Phase::Done);
        let ended = async {
            while let Some(task) = self.tasks.join_next().await {
                task.expect("no call of the queue fails");
            }
        };
        timeout(SOON, ended).await.expect("the load ends");
        let client = installation.machines.clients[via].with_retry_for(SOON);
        let collected = async {
            while client.depth("collected", None).await.expect("a depth").completed > 0 {
                sleep(POLL).await;
            }
        };
        timeout(SOON, collected).await.expect("ended messages are collected");
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
    StdRng::seed_from_u64(crate::crash::seed())
}

async fn check_history(installation: &mut Installation, via: usize, queues: Vec<(String, Vec<String>)>) {
    let client = installation.machines.clients[via].with_retry_for(Duration::from_secs(60));
    tokio::select! {
        caught_up = catches_up(&client) => if let Err(why) = caught_up {
            for indexer in &mut installation.indexers {
                println!("an indexer wrote: {}", indexer.killed().await);
            }
            for server in &mut installation.machines.servers {
                println!("a server wrote: {}", server.killed().await);
            }
            panic!("{why}");
        },
        last_words = any_ended(&mut installation.indexers) => panic!("an indexer has ended: {last_words}"),
    }
    index_equals_redis(&installation.machines.servers[via].url(), 100).await;
    for (queue, ids) in queues {
        traces_are_whole(&client, &queue, ids).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_each_process_may_die_without_stopping_the_queue() {
    let mut installation = Installation::start(Duration::ZERO).await;
    // The load calls only the second server, which is never killed. The first holds the relay's leader lease, and is.
    let loads = Loads::start(&installation, &[1], &mut rng()).await;
    loads.makes_progress(50).await;

    println!("Kafka dies");
    installation.kafka.kill().await;
    loads.makes_progress(50).await;
    installation.kafka.start_again().await;
    loads.makes_progress(50).await;

    println!("the indexer dies");
    installation.indexers[0].kill().await;
    loads.makes_progress(50).await;
    installation.indexers[0].start().await;

    println!("a second indexer joins, and the first dies");
    installation.indexers[1].start().await;
    loads.makes_progress(50).await;
    installation.indexers[0].kill().await;
    loads.makes_progress(50).await;
    installation.indexers[0].start().await;

    println!("Elasticsearch dies");
    installation.elasticsearch.kill().await;
    loads.makes_progress(50).await;
    installation.elasticsearch.start_again().await;
    loads.makes_progress(50).await;

    println!("the relay dies");
    installation.machines.servers[0].kill().await;
    loads.makes_progress(50).await;
    installation.machines.servers[0].restart().await;

    println!("Elasticsearch refuses writes");
    installation.read_only(true).await;
    loads.makes_progress(50).await;
    installation.read_only(false).await;

    println!("Kafka is down for a minute");
    installation.kafka.kill().await;
    let back_at = Instant::now() + KAFKA_DOWN;
    loads.makes_progress(100).await;
    tokio::time::sleep_until(back_at).await;
    installation.kafka.start_again().await;
    loads.makes_progress(50).await;

    let queues = loads.end(&installation, 1).await;
    check_history(&mut installation, 1, queues).await;
}

/// The processes that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Kafka,
    Elasticsearch,
    Indexer(usize),
    Server(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_random_kills_leave_every_transition_exactly_once() {
    use Victim::*;
    let mut rng = rng();
    let rounds = amount(ROUNDS, ROUNDS_LONG);
    // Clients retry calls of a killed server until it is back.
    let mut installation = Installation::start(SOON).await;
    installation.indexers[1].start().await;
    let loads = Loads::start(&installation, &[0, 1], &mut rng).await;
    for round in 0..rounds {
        loads.makes_progress(rng.random_range(1..60)).await;
        let all = [Kafka, Elasticsearch, Indexer(0), Indexer(1), Server(0), Server(1)];
        let count = rng.random_range(1..=2);
        let victims: Vec<Victim> = all.choose_multiple(&mut rng, count).copied().collect();
        println!("round {round}: {victims:?}");
        for victim in &victims {
            match *victim {
                Kafka => installation.kafka.kill().await,
                Elasticsearch => installation.elasticsearch.kill().await,
                Indexer(at) => installation.indexers[at].kill().await,
                Server(at) => installation.machines.servers[at].kill().await,
            }
        }
        sleep(Duration::from_millis(rng.random_range(0..2_000))).await;
        for victim in victims {
            match victim {
                Kafka => installation.kafka.start_again().await,
                Elasticsearch => installation.elasticsearch.start_again().await,
                Indexer(at) => installation.indexers[at].start().await,
                Server(at) => installation.machines.servers[at].restart().await,
            }
        }
    }
    let queues = loads.end(&installation, 0).await;
    check_history(&mut installation, 0, queues).await;
}

/// The check itself reports messages that are missing in the index or differ there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_history_check_reports_missing_and_different_messages() {
    use crate::system::program;
    use elasticsearch::http::Method;
    use elasticsearch::http::headers::HeaderMap;
    use elasticsearch::http::transport::Transport;

    let installation = Installation::start(Duration::from_secs(30)).await;
    let client = &installation.machines.clients[0];
    let messages = (0..20).map(|n| tallystone_client::NewMessage::new(format!("m{n:02}"), "")).collect();
    client.enqueue("q", messages).await.expect("an Enqueue");
    catches_up(client).await.expect("the index catches up");
    let raw = Transport::single_node(&installation.elasticsearch.address()).expect("a transport");
    let send = async |path: &str, body: serde_json::Value| {
        let sent = raw.send(Method::Post, path, HeaderMap::new(), None::<&()>, Some(body.to_string()), None).await;
        let text = sent.expect("a response").text().await.expect("text");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let find = async |index: &str, id: &str| {
        let query = serde_json::json!({ "query": { "term": { "id": id } } });
        let found = send(&format!("tallystone-{index}/_search"), query).await;
        found["hits"]["hits"][0].clone()
    };
    // Bypasses the indexer: deletes one message and one transition, and changes the worker of one message.
    let encoded = |hit: &serde_json::Value| hit["_id"].as_str().expect("an id").replace('/', "%2F");
    let delete = async |index: &str, hit: &serde_json::Value| {
        let name = hit["_index"].as_str().unwrap_or(index);
        let path = format!("{name}/_doc/{}?refresh=true", encoded(hit));
        let sent = raw.send(Method::Delete, &path, HeaderMap::new(), None::<&()>, None::<String>, None).await;
        assert!(sent.expect("a response").status_code().is_success());
    };
    delete("current-*", &find("current-*", "m03").await).await;
    let mut changed = find("current-*", "m07").await;
    changed["_source"]["worker"] = "another worker".into();
    let index = changed["_index"].as_str().expect("an index");
    send(&format!("{index}/_doc/{}?refresh=true", encoded(&changed)), changed["_source"].clone()).await;
    delete("historic", &find("historic-*", "m11").await).await;

    let server = installation.machines.servers[0].url();
    let checked =
        program::run(program::command(&["history", "check", "--traces", "--json", "--server", &server]), "").await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let report = checked.json().remove(0);
    let found = report["differences"].as_array().expect("a list").iter();
    let mut named: Vec<&str> = found.filter_map(|found| found["id"].as_str()).collect();
    named.sort();
    assert_eq!(named, ["m03", "m07", "m11"], "{report}");
}
