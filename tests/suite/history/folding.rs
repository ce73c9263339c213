//! The property test of the fold. Random programs run on the oracle; their events reach the store in any order that
//! Kafka allows. Then the messages equal the oracle's, and each trace has each version once.
//!
//! A failure prints its seed; `TALLYSTONE_PROPERTY_SEED` repeats it.

use crate::property::call::{Call, Tokens, shards};
use crate::property::program::{Act, QUEUES, Step, draw};
use crate::property::setting;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_indexer::{SearchQuery, fold};
use tallystone_model::oracle::Oracle;
use tallystone_model::{Message, Recorded, Refusal, Shard, State, Store};
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};
use tallystone_tests::{Clock, HistoryFixture, HistoryUnderTest, amount};

over_history_stores!(q19_random_lives_fold_to_the_oracles_messages);

const PROGRAMS: u64 = 6;
const PROGRAMS_LONG: u64 = 60;

async fn q19_random_lives_fold_to_the_oracles_messages<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let mut events = 0;
    let programs = amount(PROGRAMS, PROGRAMS_LONG);
    for number in 0..programs {
        let seed = first_seed.wrapping_add(number);
        let seed_on_panic = SeedOnPanic(seed);
        let shards = shards(&format!("{}/{number}", history.queue));
        let oracle = run(&draw(seed), &shards).await;
        let recorded: Vec<Recorded> = shards.iter().flat_map(|shard| outbox(&oracle, shard)).collect();
        events += recorded.len();
        let other = S::shared().await;
        deliver(&history.held.store, &other.store, &recorded, seed).await;
        history.show().await;
        for shard in &shards {
            compare(history, &oracle, shard).await;
        }
        drop(seed_on_panic);
    }
    assert!(events > 50 * programs as usize, "only {events} events: too few");
}

/// Prints the seed of the program if the test panics.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TALLYSTONE_PROPERTY_SEED={} repeats this", self.0);
        }
    }
}

/// Runs a program on the oracle alone.
async fn run(program: &[Step], shards: &[Shard; QUEUES]) -> Oracle {
    let clock = Clock::new().shared();
    let oracle = Oracle::new(clock.clone());
    let mut tokens = Tokens::default();
    for step in program {
        let shard = &shards[step.queue];
        match Call::of(&step.act, step.queue, &mut tokens, clock.load(Ordering::SeqCst)) {
            Some(call) => {
                let reply = call.on(&oracle, shard).await;
                tokens.learn(step.queue, &reply);
                if matches!(call, Call::Delete) {
                    clock.fetch_add(1, Ordering::SeqCst);
                }
            }
            None => pass(&oracle, shard, &step.act, &clock).await,
        }
    }
    oracle
}

async fn pass(oracle: &Oracle, shard: &Shard, act: &Act, clock: &Arc<AtomicU64>) {
    let now_ms = clock.load(Ordering::SeqCst);
    let to_ms = match act {
        Act::PassToDue { and_ms } => {
            let messages = messages(oracle, shard).await;
            let due = messages.iter().filter(|message| matches!(message.state, State::Invisible | State::Running));
            due.map(|message| message.due_ms).min().unwrap_or(now_ms).max(now_ms) + and_ms
        }
        Act::Pass { ms } => now_ms + ms,
        _ => now_ms,
    };
    clock.store(to_ms, Ordering::SeqCst);
}

async fn messages(oracle: &Oracle, shard: &Shard) -> Vec<Message> {
    let mut messages = Vec::new();
    for state in State::ALL {
        match oracle.list_messages(shard, state, "", usize::MAX).await {
            Ok(page) => messages.extend(page.items),
            Err(Refusal::QueueNotFound { .. }) => {}
            Err(refusal) => panic!("the oracle lists: {refusal}"),
        }
    }
    messages
}

fn outbox(oracle: &Oracle, shard: &Shard) -> Vec<Recorded> {
    let events = oracle.events(shard).into_iter().enumerate();
    events.map(|(offset, event)| Recorded { shard: shard.clone(), offset: offset as u64, event }).collect()
}

/// Writes the events through two writers: the events of one message in order, with repetitions of earlier ones; events
/// of different messages in any order. One program in three has no order at all, which is more than Kafka allows.
async fn deliver<S: HistoryUnderTest>(one: &S, other: &S, events: &[Recorded], seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut order = if seed.is_multiple_of(3) { shuffled(events, &mut rng) } else { interleaved(events, &mut rng) };
    let mut batches: [Vec<Vec<Recorded>>; 2] = [Vec::new(), Vec::new()];
    while !order.is_empty() {
        let rest = order.split_off(rng.random_range(1..=order.len().min(80)));
        batches[rng.random_range(0..2)].push(order);
        order = rest;
    }
    let write = async |store: &S, batches: &[Vec<Recorded>]| {
        for batch in batches {
            assert_eq!(store.record(batch).await.expect("a record"), [], "nothing is rejected");
        }
        store.advance(tallystone_tests::history::ONLY, 1).await.expect("an advance");
    };
    tokio::join!(write(one, &batches[0]), write(other, &batches[1]));
}

fn shuffled(events: &[Recorded], rng: &mut StdRng) -> Vec<Recorded> {
    let mut order = [events, events].concat();
    order.shuffle(rng);
    order
}

fn interleaved(events: &[Recorded], rng: &mut StdRng) -> Vec<Recorded> {
    // The key of the topic is queue and id, so all messages of an id share it.
    let mut by_key: BTreeMap<_, Vec<&Recorded>> = BTreeMap::new();
    for recorded in events {
        by_key.entry((&recorded.shard, &recorded.event.id)).or_default().push(recorded);
    }
    let mut waiting: Vec<(Vec<&Recorded>, usize)> = by_key.into_values().map(|events| (events, 0)).collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let at = rng.random_range(0..waiting.len());
        let (events, next) = &mut waiting[at];
        if rng.random_bool(0.05) {
            // A consumer that did not commit restarts at an earlier event.
            *next = rng.random_range(0..=*next);
        }
        order.push(events[*next].clone());
        *next += 1;
        if *next == events.len() {
            waiting.swap_remove(at);
        }
    }
    order
}

async fn compare<S: HistoryUnderTest>(history: &HistoryFixture<S>, oracle: &Oracle, shard: &Shard) {
    let history = HistoryFixture::new(history.held.clone(), shard.queue.as_str());
    let mut expected: Vec<IndexedMessage> = Vec::new();
    let mut depth = [0; 6];
    for message in messages(oracle, shard).await {
        depth[message.state as usize - 1] += 1;
        expected.push(indexed(shard, &message));
    }
    let mut found = history.pages(&SearchQuery { limit: 5, ..history.any() }).await;
    found.sort_by(|a, b| a.id.cmp(&b.id));
    expected.sort_by(|a, b| a.id.cmp(&b.id));
    // The oracle's messages do not have these fields; the traces check them.
    found.iter_mut().for_each(|message| (message.sequence, message.changed_at_ms) = (0, 0));
    assert_eq!(found, expected, "the messages of {}", shard.queue);
    assert_eq!(history.depth(&[]).await, depth, "the depth of {}", shard.queue);
    let mut traces: BTreeMap<String, Vec<TracedTransition>> = BTreeMap::new();
    for event in oracle.events(shard) {
        traces.entry(event.id.to_string()).or_default().push(fold::transition(&event));
    }
    for (id, expected) in &traces {
        assert_eq!(&history.trace(id).await.transitions, expected, "the trace of {id} in {}", shard.queue);
    }
    let all = history.pages(&SearchQuery { include_gone: true, limit: 5, ..history.any() }).await;
    let lives: usize = traces.values().flatten().filter(|transition| transition.version == 1).count();
    assert_eq!(all.len(), lives, "one document for each message that was ever in {}", shard.queue);
}

/// The message as a history store returns it.
fn indexed(shard: &Shard, message: &Message) -> IndexedMessage {
    IndexedMessage {
        queue: shard.queue.to_string(),
        shard: shard.number.into(),
        id: message.id.to_string(),
        sequence: 0,
        state: message.state as i32,
        gone: false,
        version: message.version,
        priority: message.priority,
        metadata: message.metadata.pairs().clone(),
        attempts: message.attempts,
        fencing_token: message.fencing_token,
        worker: message.worker.clone(),
        reason: message.reason.clone(),
        enqueued_at_ms: message.enqueued_at_ms as i64,
        state_since_ms: message.state_since_ms as i64,
        changed_at_ms: 0,
        due_ms: if message.state.is_terminal() { 0 } else { message.due_ms as i64 },
        coalesced: message.coalesced,
        repaired: false,
        uncertain: false,
        payload: None,
        result: message.result.clone(),
    }
}
