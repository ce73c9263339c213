//! The number of shards of a queue changes under load on a Redis Cluster, whose primaries fail meanwhile (Q17, X4).

use super::cluster::{Cluster, Fault};
use super::cluster_failover::{CONFIG, PARTITIONS};
use super::conclude::{check_invariants, drain, progress};
use super::judge::LATE_MS;
use super::load::{Load, Phase, queue_config};
use super::machines::{self, config_file};
use crate::histories::history::What;
use crate::histories::leases;
use crate::system::program::SOON;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{Change, ChangeRequest, Client, MessagePatch, QueueConfig, Selection, State};
use tallystone_link::RedisConfig;
use tallystone_model::{Cause, QueueName, Shard, Store};
use tallystone_server::store::{OutboxBound, RedisOptions, RedisStore};
use tallystone_tests::SHARD_NUMBERS;
use tallystone_tests::queue::follow;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The queues that are changed, and whether they are exclusive.
const QUEUES: [(&str, bool); 2] = [("simple", false), ("exclusive", true)];
/// Between two checks of the background job.
const CHECK: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x4_the_number_of_shards_changes_under_load_and_each_message_is_completed_once() {
    // The earlier shards are empty soon after their last message has ended.
    change_under_load([None; 4], 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x4_the_number_of_shards_changes_while_primaries_fail() {
    let faults = [Some((0, Fault::Killed)), Some((1, Fault::Frozen)), None, Some((2, Fault::Killed))];
    // Longer than an Enqueue is repeated: of a message that is gone it would be a new one.
    change_under_load(faults, 15_000).await;
}

/// Changes queues of 4 shards to 8, 3, 1 and 6. A fault follows the change of its position, before the earlier shards are removed.
/// `retention_ms`: how long messages are kept that have ended.
async fn change_under_load(faults: [Option<(usize, Fault)>; 4], retention_ms: u64) {
    let mut cluster = Cluster::start().await;
    let (_dir, config) = config_file(CONFIG);
    let (_servers, clients) = machines::pair(&cluster.url(), &config, machines::PATIENCE).await;
    let redis = RedisConfig { url: cluster.url(), partitions: Some(PARTITIONS), ..RedisConfig::default() };
    let options = RedisOptions::new(&redis, OutboxBound::default()).expect("no data folder");
    let store = RedisStore::connect(options).await.expect("a durable Redis");
    let (phase, phases) = watch::channel(Phase::Load);
    let (mut tasks, mut loads) = (JoinSet::new(), Vec::new());
    for (via, (name, is_exclusive)) in QUEUES.into_iter().enumerate() {
        let terminal_retention_ms = Some(retention_ms);
        let queue = QueueConfig { shards: Some(4), terminal_retention_ms, ..queue_config(is_exclusive) };
        clients[0].create_queue(name, queue).await.expect("a queue");
        let load = Load::new(name, is_exclusive, &clients, &phases).retention(Duration::from_millis(retention_ms));
        load.spawn_spread(via, &mut tasks);
        loads.push(load);
    }
    let changes = async {
        for (n, (shards, fault)) in [8, 3, 1, 6].into_iter().zip(faults).enumerate() {
            progress(&loads, 60).await;
            let began = Instant::now();
            for (name, _) in QUEUES {
                let change = QueueConfig { shards: Some(shards), ..QueueConfig::default() };
                let changed = clients[n % 2].update_queue(name, change).await.expect("a change");
                assert_eq!((changed.config.shards, changed.shards_draining > 0), (Some(shards), true), "{name}");
            }
            progress(&loads, 60).await;
            if let Some((slots, fault)) = fault {
                cluster.strike(slots, fault).await;
                progress(&loads, 20).await;
            }
            for (name, _) in QUEUES {
                finish(&clients[1], &store, name).await;
                println!("{name}: {shards} shards, and no earlier ones after {:?}", began.elapsed());
                check_invariants(&clients, name).await;
            }
        }
        progress(&loads, 60).await;
    };
    tokio::select! {
        () = changes => {}
        Some(ended) = tasks.join_next() => panic!("ended early: {ended:?}"),
    }
    drain(phase, tasks, &clients, &loads).await;
    for load in &loads {
        check_invariants(&clients, &load.queue).await;
        judge(load, &store).await;
    }
}

/// Makes all messages that wait as urgent as possible: under this load there is always a more urgent one than some in an earlier shard.
async fn raise(client: &Client, queue: &str) {
    let patch = MessagePatch { priority: Some(-1_000), ..MessagePatch::default() };
    let selection = Selection { states: vec![State::Pending], ..Selection::default() };
    let mut request = ChangeRequest::new(selection, Change::Update(patch));
    loop {
        let page = client.change_messages(queue, request.clone()).await.expect("a page");
        if page.next_page_token.is_empty() {
            return;
        }
        request.page_token = page.next_page_token;
    }
}

/// Runs the background job of a server until the earlier shards are removed.
async fn finish(client: &Client, store: &RedisStore, queue: &str) {
    let give_up_at = Instant::now() + SOON;
    let name = QueueName::parse("queue", queue).expect("a valid name");
    loop {
        // A primary may be unavailable: then another check finishes.
        if store.get_queue(&name).await.is_ok() {
            drop(store.check_shards().await);
        }
        let draining = client.get_queue(queue).await.expect("a queue").shards_draining;
        if draining == 0 {
            return;
        }
        assert!(Instant::now() < give_up_at, "{queue}: {draining} shards are not empty");
        raise(client, queue).await;
        sleep(CHECK).await;
    }
}

/// The events of all shards that ever existed show that every acknowledged message was completed once, and that no two workers had the
/// same message, or messages of one key, at the same time.
async fn judge(load: &Load, store: &RedisStore) {
    let first = Shard::first(&QueueName::parse("queue", &load.queue).expect("a valid name"));
    let mut completions: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for number in 0..SHARD_NUMBERS {
        let events = store.outbox_events(&first.sibling(number)).await.expect("the outbox");
        follow(&events);
        for event in events.iter().filter(|event| event.by == Cause::Complete) {
            completions.entry(event.id.to_string()).or_default().push(number);
        }
    }
    let history = load.recorder.history();
    let accepted: Vec<&String> = history
        .iter()
        .filter_map(|op| if let What::Enqueued { id, .. } = &op.what { Some(id) } else { None })
        .collect();
    let (mut by_shard, mut wrong) = (BTreeMap::<u16, usize>::new(), Vec::new());
    for id in &accepted {
        match completions.remove(*id).as_deref() {
            Some([number]) => *by_shard.entry(*number).or_default() += 1,
            other => wrong.push(format!("{id}: completed in {other:?}")),
        }
    }
    println!("{}: {} accepted; completed by shard: {by_shard:?}", load.queue, accepted.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(completions, BTreeMap::new(), "completed, and not accepted");
    let generations = [0..4, 4..12, 12..15, 15..16, 16..22];
    for generation in generations {
        assert!(by_shard.range(generation.clone()).next().is_some(), "no message in {generation:?}");
    }
    let violations = leases::check(&history, LATE_MS);
    assert!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());
}
