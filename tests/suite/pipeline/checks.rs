//! What must hold once all events are delivered.

use crate::system::program;
use futures::StreamExt;
use rand::seq::SliceRandom as _;
use std::time::Duration;
use tallystone_client::{Client, DepthQuery, Queues};
use tallystone_tests::{Polling, is_long};
use tokio::time::Instant;

/// How long the index may take to catch up with everything: after Kafka was killed several times, minutes.
const CATCH_UP: Duration = Duration::from_secs(300);
const TRACES_AT_ONCE: usize = 8;
/// Traces that are read of each queue; `TALLYSTONE_TEST_LONG`: all. `history check` compares every message anyway.
const TRACES: usize = 200;

/// Waits until the watermark is past the time of the call; outages in between are tolerated. The error says what was
/// found last.
pub(super) async fn catches_up(client: &Client) -> Result<(), String> {
    let (give_up_at, polling) = (Instant::now() + CATCH_UP, Polling::begin());
    let mut last_error = None;
    while Instant::now() < give_up_at {
        match client.history_caught_up(give_up_at - Instant::now()).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => last_error = Some(error),
        }
        polling.pause().await;
    }
    let depth = client.indexed_depth(DepthQuery::of(Queues::One("any".to_owned()))).await;
    Err(format!("the index does not catch up: {depth:?}; last error: {last_error:?}"))
}

/// Every message has its whole trace, each version once. A message that the queue no longer has is gone in the index.
pub(super) async fn traces_are_whole(client: &Client, queue: &str, mut ids: Vec<String>) {
    let all = ids.len();
    if !is_long() {
        ids.shuffle(&mut rand::rng());
        ids.truncate(TRACES);
    }
    let count = ids.len();
    let traces = futures::stream::iter(ids).map(|id| async move {
        let trace = client.trace_message(queue, &id, 0, 10_000, "").await.expect("a response");
        assert_eq!(trace.gaps, [], "{queue} {id}: {trace:?}");
        let versions: Vec<u32> = trace.transitions.iter().map(|transition| transition.version).collect();
        let mut expected = 1;
        for transition in &trace.transitions {
            assert_eq!(transition.version, expected, "{queue} {id}: {trace:?}");
            // A call that is repeated after the retention makes the message again.
            expected = if transition.to.is_none() { 1 } else { expected + 1 };
        }
        let message = trace.message.unwrap_or_else(|| panic!("{queue} {id}: not in current"));
        assert_eq!(Some(message.version), versions.last().copied(), "{queue} {id}");
        let last = trace.transitions.last().expect("a transition");
        assert_eq!(message.gone, last.to.is_none(), "{queue} {id}");
        message.gone
    });
    let gone = traces.buffer_unordered(TRACES_AT_ONCE).filter(|gone| std::future::ready(*gone)).count().await;
    println!("{queue}: {count} traces of {all} are complete, {gone} of them of messages that are gone");
}

/// `tallystone history check` compares every message of the queues with the index.
pub(super) async fn index_equals_redis(server: &str, compared_min: u64) {
    let checked = program::run(program::command(&["history", "check", "--json", "--server", server]), "").await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let compared: u64 = checked.json().iter().map(|report| report["compared"].as_u64().expect("a number")).sum();
    println!("{compared} messages compared");
    assert!(compared >= compared_min, "{compared} messages compared");
}
