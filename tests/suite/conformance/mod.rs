//! The conformance suite: what the rows of the queue's specification say, over every store. A test's name begins
//! with its row; each runs on the oracle, on a real Redis, on a Redis Cluster and on a simulated Redis, on a clock that only the test moves, and ends
//! with a proof of the invariants of every queue it made.
//!
//! What lives here: one file per group of verbs, and `redis_only` and `quiet` for what only a Redis can do or be. What may not:
//! anything above the [`Store`](tallystone_model::Store) trait.

use tallystone_model::store::DequeueRequest;
use tallystone_model::{NewMessage, State};
use tallystone_tests::queue::{lease_ref, no_lease};
use tallystone_tests::{Probe, Stage, TestQueue, exclusive, keyed, request, simple};

/// Makes a module with a test of every `async fn test<S: Probe>(stage: &Stage<S>)`, over the stage that the expression makes of the
/// test's name.
macro_rules! over_store {
    ($store:ident, |$name:ident| $stage:expr, $($test:ident),+) => {
        mod $store {
            $(#[tokio::test]
            async fn $test() {
                let $name = stringify!($test);
                let stage = $stage;
                super::$test(&stage).await;
                stage.assert_sound().await;
            })+
        }
    };
}

/// The same over each store.
macro_rules! over_each_store {
    ($($test:ident),+ $(,)?) => {
        over_store!(on_oracle, |name| tallystone_tests::Stage::oracle(name), $($test),+);
        over_store!(on_redis, |name| tallystone_tests::Stage::redis(name).await, $($test),+);
        over_store!(on_cluster, |name| tallystone_tests::Stage::cluster(name).await, $($test),+);
        over_store!(on_simulator, |name| tallystone_tests::Stage::simulated(name).await, $($test),+);
    };
}

mod ages;
mod arrows;
mod attempts;
mod cancel;
mod coalesce;
mod dequeue;
mod due;
mod enqueue;
mod errored;
mod exclusive;
mod filters;
mod id_window;
mod leases;
mod operator;
mod parked;
mod priority_classes;
mod queues;
mod quiet;
mod redis_only;
mod request_ids;
mod selection;
mod selection_races;
mod servers;
mod shards;
mod tickets;
mod verdicts;
mod views;

/// The message as it must be sent to come into a state by [`bring`].
fn bound_for(message: NewMessage, state: State) -> NewMessage {
    match state {
        State::Invisible => NewMessage { invisibility_ms: Some(60_000), ..message },
        State::Errored => NewMessage { max_attempts: Some(1), ..message },
        _ => message,
    }
}

/// Enqueues a message, more urgent than all others, and brings it into a state. Answers the token of its lease;
/// 0: it has had none.
async fn bring<S: Probe>(queue: &TestQueue<S>, message: NewMessage, state: State) -> u64 {
    let id = message.id.to_string();
    queue.put([bound_for(message, state)]).await;
    let mut fencing_token = 0;
    if matches!(state, State::Running | State::Completed | State::Errored) {
        let lease = queue.take_one().await;
        assert_eq!(lease.id.as_str(), id, "it is the most urgent");
        fencing_token = lease.fencing_token;
    }
    let moved = match state {
        State::Completed => queue.complete(lease_ref(&id, fencing_token)).await,
        State::Errored => queue.release(lease_ref(&id, fencing_token), None, "broken").await,
        State::Canceled => queue.cancel(no_lease(&id), "unwanted").await,
        State::Invisible | State::Pending | State::Running => return fencing_token,
    };
    assert_eq!(moved.expect("a transition").state, state);
    fencing_token
}

/// A dequeue with this request id.
fn named(request_id: &str, limit: usize) -> DequeueRequest {
    DequeueRequest { request_id: request_id.to_owned(), ..request(limit) }
}

/// A queue of each type with messages m0 to m5, each with another key.
async fn queues<S: Probe>(stage: &Stage<S>) -> [TestQueue<S>; 2] {
    let queues = [stage.queue(simple()).await, stage.queue(exclusive()).await];
    for queue in &queues {
        queue.put((0..6).map(|n| keyed(&format!("m{n}"), n, &format!("k{n}")))).await;
    }
    queues
}
