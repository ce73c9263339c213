//! A store that is lost while processes count, and a worker that hangs.

use super::board::{
    FIELDS, KEY, add_all, column, counts, create, published_to, start_sets, until_none, until_published, url,
};
use crate::counting::house::until;
use crate::crash::machines::{Redis, Server};
use crate::system::program::{self, Running, metrics_page};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{Counted, CounterClient};
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_tests::compact::{Engine, Node};
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::task::block_in_place;
use tonic::transport::Channel;

const IDS: u64 = 300;
/// Counters whose names are no numbers. With them a namespace is more than one page.
const NOT_DECIMAL: u64 = 1_000;

/// The processes: a Redis, a queue, counters, two workers, and the Redis with the counter set.
struct Machines {
    redis: Redis,
    _queue: Server,
    _counters: Server,
    client: CounterClient,
    wire: CountersClient<Channel>,
    workers: Vec<Running>,
    metrics: Vec<String>,
    sets: Node,
    config: String,
    _dir: TempDir,
}

impl Machines {
    async fn start() -> Machines {
        let sets = start_sets(Engine::Redis);
        create(&sets);
        let dir = TempDir::new().expect("a temporary folder");
        let path = dir.path().join("tallystone.toml");
        std::fs::write(&path, format!("[compact]\nurl = \"{}\"\n", url(&sets))).expect("a file");
        let config = path.to_str().expect("a plain path").to_owned();
        let redis = Redis::start().await;
        let queue = Server::start(redis.url(), &path).await;
        let (redis_url, queue_url) = (redis.url(), queue.url());
        let counters = Server::start_as(&["counters", "--redis-url", &redis_url, "--server", &queue_url]).await;
        let client = CounterClient::connect(counters.url()).await.expect("a server that listens");
        let channel = Channel::from_shared(counters.url()).expect("a good address").connect().await;
        let wire = CountersClient::new(channel.expect("a server that listens"));
        let (mut workers, mut metrics) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let address = format!("127.0.0.1:{}", lasting_port());
            let args = ["rollup-worker", "--config", &config, "--redis-url", &redis_url, "--server", &queue_url];
            workers.push(Running::start(program::command(&[&args[..], &["--metrics-listen", &address]].concat())));
            workers.last_mut().expect("just started").listens(address.parse().expect("an address")).await;
            metrics.push(address);
        }
        Machines { redis, _queue: queue, _counters: counters, client, wire, workers, metrics, sets, config, _dir: dir }
    }

    /// Adds to every counter of every namespace.
    async fn add(&self, delta: i64, expected: &mut BTreeMap<u64, i64>) {
        let deltas: Vec<(u64, i64)> = (0..IDS).map(|id| (id, delta)).collect();
        for field in FIELDS {
            add_all(&mut self.wire.clone(), field, &deltas).await;
        }
        deltas.into_iter().for_each(|(id, delta)| *expected.entry(id).or_default() += delta);
    }

    /// Waits until rollups have counted all of it.
    async fn until_rolled_up(&self, expected: &BTreeMap<u64, i64>) {
        for field in FIELDS {
            let wrong = async || {
                let mut wrong = Vec::new();
                for ids in expected.keys().copied().collect::<Vec<u64>>().chunks(1_000) {
                    let found = counts(&self.client, field, ids.iter().copied()).await;
                    wrong.extend(found.into_iter().filter(|(id, (count, _))| *count != expected[id]));
                }
                wrong.iter().map(|(id, (count, _))| format!("{field} of {id} counts {count}")).collect()
            };
            until_none(wrong).await;
        }
    }

    fn signal(&self, worker: usize, signal: Signal) {
        self.workers[worker].signal(signal);
    }

    /// A sum over the workers.
    async fn published(&self, outcome: &str) -> u64 {
        let mut sum = 0;
        for address in &self.metrics {
            let page = metrics_page(address).await;
            let name = format!("tallystone_rollup_published_total{{outcome=\"{outcome}\"}} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&name)).expect("from the start");
            sum += value.parse::<u64>().expect("a number");
        }
        sum
    }

    async fn republish(&self, args: &[&str]) -> program::Ended {
        let redis_url = self.redis.url();
        let verb = ["--json", "counter", "namespace", "republish", "--config", &self.config, "--redis-url", &redis_url];
        program::run(program::command(&[&verb[..], args].concat()), "").await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_a_lost_store_is_refilled_by_one_command() {
    let mut machines = Machines::start().await;
    let mut expected = BTreeMap::new();
    for field in FIELDS {
        machines.client.put_namespace(field, published_to(field)).await.expect("a namespace");
    }
    let names: Vec<String> = (0..NOT_DECIMAL).map(|number| format!("no-number/{number}")).collect();
    add_all(&mut machines.wire, "likes", &names.iter().map(|name| (name, 1)).collect::<Vec<_>>()).await;
    machines.add(7, &mut expected).await;
    machines.until_rolled_up(&expected).await;
    until_none(async || {
        let counts = machines.client.get_many("likes", names.clone()).await.expect("an answer");
        let wrong = names.iter().zip(counts).filter(|(_, counted)| !matches!(counted, Ok(Counted { count: 1, .. })));
        wrong.map(|(name, _)| name.clone()).collect()
    })
    .await;
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
    }
    assert!(machines.published("published").await >= 4 * IDS);

    // It dies, and comes back empty: no rollup waits for it.
    block_in_place(|| machines.sets.kill());
    machines.add(1, &mut expected).await;
    machines.until_rolled_up(&expected).await;
    for entry in std::fs::read_dir(machines.sets.dir()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.expect("removed");
    }
    block_in_place(|| machines.sets.start_again());
    machines.add(1, &mut expected).await;
    machines.until_rolled_up(&expected).await;
    until(async || machines.published("refused").await, |refused| *refused > 0).await;
    assert!(block_in_place(|| machines.sets.wire().run(&format!("CT.GET {KEY} 1"))).code() == Some("NOSET"));

    let refused = machines.republish(&["likes"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("CT.CREATE"), "{refused:?}");
    let refilled = machines.republish(&[&["--create=20"], &FIELDS[..]].concat()).await;
    assert_eq!(refilled.code, Some(0), "{refilled:?}");
    for (report, field) in refilled.json().iter().zip(FIELDS) {
        let not_decimal = if field == "likes" { NOT_DECIMAL } else { 0 };
        assert_eq!((report["namespace"].as_str(), report["not_decimal"].as_u64()), (Some(field), Some(not_decimal)));
        assert!(report["counters"].as_u64() >= Some(IDS + not_decimal), "{report}");
    }
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
    }
    // Once more changes nothing, and the next rollups are published.
    let again = machines.republish(&FIELDS).await;
    assert!(again.code == Some(0) && again.json().iter().all(|report| report["older"].as_u64() > Some(0)), "{again:?}");
    machines.add(1, &mut expected).await;
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
    }
    assert!(machines.published("not_decimal").await >= NOT_DECIMAL);
}

/// A rollup is committed, and the worker dies before it has published the count: nothing publishes it until the next rollup of the
/// counter, or `republish`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_a_publication_that_died_with_its_worker_is_made_up_by_republish() {
    let mut machines = Machines::start().await;
    let mut expected = BTreeMap::new();
    for field in FIELDS {
        machines.client.put_namespace(field, published_to(field)).await.expect("a namespace");
    }
    machines.add(1, &mut expected).await;
    machines.until_rolled_up(&expected).await;
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
    }
    let stale = expected.clone();
    // The workers commit, and cannot send.
    block_in_place(|| machines.sets.kill());
    machines.add(1, &mut expected).await;
    machines.until_rolled_up(&expected).await;
    (0..machines.workers.len()).for_each(|worker| machines.signal(worker, Signal::SIGKILL));
    block_in_place(|| machines.sets.start_again());
    assert_ne!(stale, expected);
    for field in FIELDS {
        until_published(&machines.sets, field, &stale).await;
    }
    let healed = machines.republish(&FIELDS).await;
    assert_eq!(healed.code, Some(0), "{healed:?}");
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_a_worker_that_hung_overwrites_nothing() {
    let machines = Machines::start().await;
    let mut expected = BTreeMap::new();
    for field in FIELDS {
        machines.client.put_namespace(field, published_to(field)).await.expect("a namespace");
    }
    for round in 0..4 {
        machines.add(1, &mut expected).await;
        // Somewhere in its rollups, other ones each time.
        tokio::time::sleep(Duration::from_millis(700 + 130 * round)).await;
        machines.signal(round as usize % 2, Signal::SIGSTOP);
        machines.add(1, &mut expected).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        machines.signal(round as usize % 2, Signal::SIGCONT);
    }
    machines.until_rolled_up(&expected).await;
    for field in FIELDS {
        until_published(&machines.sets, field, &expected).await;
        // Each count with the time of its checkpoint.
        for ids in expected.keys().copied().collect::<Vec<u64>>().chunks(1_000) {
            let read = async || {
                let mut found = column(&machines.sets, field);
                found.retain(|id, _| ids.contains(id));
                (counts(&machines.client, field, ids.iter().copied()).await, found)
            };
            until(read, |(counts, found)| counts == found).await;
        }
    }
    for worker in machines.workers {
        assert!(worker.stop().await.success());
    }
}
