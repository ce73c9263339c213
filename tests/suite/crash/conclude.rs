//! What is true during the load, and when all is over: the record, the servers and the outbox agree.

use super::judge::judge;
use super::load::{Load, Phase};
use super::machines::Server;
use crate::histories::history::{End, What};
use crate::system::program::{self, SOON};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tallystone_client::{Client, Depth, Message, State};
use tallystone_link::RedisConfig;
use tallystone_model::{Cause, QueueName, Shard, Store};
use tallystone_server::store::{OutboxBound, RedisOptions, RedisStore};
use tallystone_tests::Polling;
use tallystone_tests::queue::follow;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Messages whose operations are printed, where violations are found.
const NAMED_MAX: usize = 20;

/// Waits for this number of further acknowledged completions in each queue.
pub(crate) async fn progress(loads: &[Load], completions: usize) {
    for load in loads {
        let mut completed = load.completed.subscribe();
        let wanted = *completed.borrow_and_update() + completions;
        let reached = timeout(SOON, completed.wait_for(|count| *count >= wanted)).await;
        assert!(reached.is_ok(), "{}: no progress", load.queue);
    }
}

/// The scrubber finds nothing, under load too.
pub(crate) async fn check_invariants(clients: &[Client; 2], queue: &str) {
    let mut cursor = String::new();
    loop {
        let step = clients[0].check_queue(queue, &cursor).await;
        let step = step.expect("a step of the scrubber");
        assert_eq!(step.violations, [], "{queue}");
        if step.cursor.is_empty() {
            return;
        }
        cursor = step.cursor;
    }
}

pub(crate) async fn until_empty(clients: &[Client; 2], queue: &str) {
    let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
    loop {
        let depth = clients[0].depth(queue, None).await.expect("a Depth");
        if depth.live() == 0 {
            return;
        }
        assert!(Instant::now() < give_up_at, "{queue}: still {depth:?}");
        polling.pause().await;
    }
}

/// Ends the load: first no more messages come, then the queues are empty, then every task ends.
pub(crate) async fn drain(phase: watch::Sender<Phase>, tasks: JoinSet<()>, clients: &[Client; 2], loads: &[Load]) {
    phase.send_replace(Phase::Drain);
    for load in loads {
        load.has_produced().await;
        until_empty(clients, &load.queue).await;
    }
    phase.send_replace(Phase::Done);
    timeout(SOON, tasks.join_all()).await.expect("every worker ends");
}

/// At rest: the record and the servers agree. `late_ms`: by how much leases may end late. Returns the messages, all of them completed.
pub(crate) async fn conclude_by_calls(clients: &[Client; 2], load: &Load, late_ms: u64) -> BTreeMap<String, Message> {
    let queue = load.queue.as_str();
    check_invariants(clients, queue).await;
    let mut messages = BTreeMap::new();
    let mut page_token = String::new();
    loop {
        let page = clients[1].list_messages(queue, State::Completed, 1_000, &page_token).await.expect("a page");
        messages.extend(page.items.into_iter().map(|message| (message.id.clone(), message)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let history = load.recorder.history();
    let fencing_tokens = messages.values().map(|message| (message.id.clone(), message.fencing_token)).collect();
    let violations = judge(&history, late_ms, &fencing_tokens);
    let id_of = |violation: &String| Some(violation.strip_prefix("message ")?.split_once(':')?.0.to_owned());
    let ids: BTreeSet<String> = violations.iter().filter_map(id_of).take(NAMED_MAX).collect();
    let named: Vec<_> = history.iter().filter(|op| op.what.id().is_some_and(|id| ids.contains(id))).collect();
    let found: Vec<_> = messages.iter().filter(|(id, _)| ids.contains(id.as_str())).collect();
    assert!(
        violations.is_empty(),
        "{queue}: {} violations: {violations:#?}\nwhat callers saw: {named:#?}\nthe messages: {found:#?}",
        violations.len()
    );

    let mut accepted: Vec<&str> = Vec::new();
    let (mut lost, mut leased) = (0, 0);
    for op in &history {
        match &op.what {
            What::Enqueued { id, .. } => accepted.push(id),
            What::Leased { .. } => leased += 1,
            What::Ended { end: End::Lost, .. } => lost += 1,
            _ => {}
        }
    }
    println!("{queue}: {} accepted, {leased} leased, {lost} leases lost", accepted.len());
    accepted.sort_unstable();
    assert!(accepted.iter().eq(messages.keys()), "{queue}: completed is what was accepted, and nothing else");
    let depth = clients[0].depth(queue, None).await.expect("a Depth");
    let expected = Depth { completed: messages.len() as u64, ..Depth::default() };
    assert_eq!(depth, expected, "{queue}");
    messages
}

/// At rest: the record, the servers and the outbox agree.
pub(super) async fn conclude(clients: &[Client; 2], redis: &RedisConfig, load: &Load, late_ms: u64) {
    let messages = conclude_by_calls(clients, load, late_ms).await;
    let queue = load.queue.as_str();
    let options = RedisOptions::new(redis, OutboxBound::default()).expect("no data folder");
    let store = RedisStore::connect(options).await.expect("a durable Redis");
    let first = Shard::first(&QueueName::parse("queue", queue).expect("a valid name"));
    let (mut events, mut last) = (Vec::new(), BTreeMap::new());
    for number in store.layout(&first).await.expect("a queue").numbers() {
        let of_shard = store.outbox_events(&first.sibling(number)).await.expect("the outbox");
        last.extend(follow(&of_shard));
        events.extend(of_shard);
    }
    assert_eq!(last.len(), messages.len(), "{queue}: every message has its events");
    for (id, (version, state)) in last {
        let message = &messages[id.as_str()];
        assert_eq!((version, state), (message.version, Some(tallystone_model::State::Completed)), "{id}");
    }
    let completions = events.iter().filter(|event| event.by == Cause::Complete).count();
    assert_eq!(completions, messages.len(), "{queue}: each was completed once");
}

/// A relay moves everything that is in the outboxes to history, and `tallystone history check` finds what it should.
pub(super) async fn check_history(redis_url: &str, config: &Path) {
    let dir = TempDir::new().expect("a temporary folder");
    let file = dir.path().join("history.db");
    let [config, file] = [config, &file].map(|path| path.to_str().expect("a plain path"));
    let args = ["server", "--config", config, "--redis-url", redis_url, "--history-file", file, "--log", "warn"];
    let mut server = Server::start_as(&args).await;
    let args = ["history", "check", "--traces", "--json", "--server", &server.url()];
    let checked = program::run(program::command(&args), "").await;
    assert_eq!(checked.code, Some(0), "{}\n{}", checked.stdout, checked.stderr);
    let compared: u64 = checked.json().iter().map(|report| report["compared"].as_u64().expect("a number")).sum();
    println!("{compared} messages are in history as they are in the queues");
    assert!(compared > 0, "{}", checked.stdout);
    server.stop().await;
}
