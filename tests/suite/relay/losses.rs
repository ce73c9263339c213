//! What is given up or lost on the way is counted and reported, and nothing else is.

use super::{RelayFixture, RunningRelay, eventually, live};
use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::{Embedded, EmbeddedOptions};
use tallystone_model::*;
use tallystone_proto::history::v1 as pb;
use tallystone_proto::history::v1::history_server::History;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{OutboxBound, OutboxFull};
use tallystone_tests::*;
use tokio_util::sync::CancellationToken;
use tonic::Request;
#[tokio::test]
async fn q19_offsets_have_no_gaps_even_if_a_queue_is_deleted() {
    let fixture = RelayFixture::new().await;
    let relay = fixture.relay().await;
    for round in 0..3 {
        let queue = fixture.queue("again").await;
        live(&queue, 10).await;
        queue.purge(true).await;
        if round == 1 {
            fixture.settled(&queue).await;
        }
        fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    }
    let queue = fixture.queue("again").await;
    queue.put([message("last", 1)]).await;
    fixture.settled(&queue).await;
    let offsets = fixture.sink.offsets(&queue.shard);
    let breaks = offsets.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    // If the outbox was empty when the queue was deleted, offsets restart at a higher number.
    assert!(breaks <= 3 && offsets.is_sorted(), "{breaks} breaks in {offsets:?}");
    assert_eq!(fixture.sink.lost_versions(&queue.shard), Vec::<String>::new());
    relay.stop().await;
}

#[tokio::test]
async fn q19_exactly_the_lost_events_are_counted() {
    let fixture = RelayFixture::new().await;
    let mut reader = fixture.store.outbox_reader();
    let mut read = async || {
        reader.discover();
        let read = reader.read(Duration::from_millis(1)).await.expect("a read");
        reader.ack(&read.shards).await.expect("an acknowledgement");
        (read.events.len(), reader.take_lost())
    };
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    queue.purge(true).await;
    assert_eq!(read().await, (2, 0));
    // Deleted with an empty outbox and created again: its events start at a higher number.
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    // Deleted with unread events and created again: the numbers continue.
    queue.purge(true).await;
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1), message("b", 1)]).await;
    assert_eq!(read().await, (4, 0));
    // Deleted with an empty outbox, created again, deleted with unread events and created once more, between two reads.
    queue.purge(true).await;
    assert_eq!(read().await, (4, 0));
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1)]).await;
    queue.purge(true).await;
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1), message("b", 1)]).await;
    assert_eq!(read().await, (5, 0));
    // Events given up by a trim.
    queue.take(1).await;
    queue.take(1).await;
    let mut redis = fixture.redis.connection().await;
    let outbox = format!("ts:{{{}}}:outbox", queue.shard.tag());
    let _: u64 = ::redis::cmd("XTRIM").arg(&outbox).arg("MAXLEN").arg(1).query_async(&mut redis).await.expect("a trim");
    assert_eq!(read().await, (1, 1));
    // A deleted queue whose outbox is read leaves no keys.
    queue.purge(true).await;
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    read().await;
    read().await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.expect("keys");
    assert!(!keys.contains(&outbox) && !keys.contains(&"ts:outboxes:left".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn q19_given_up_events_do_not_stop_the_others() {
    let outbox = OutboxBound { events_max: 200, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let queue = fixture.queue("q").await;
    for n in 0..500 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    let relay = fixture.relay().await;
    fixture.settled(&queue).await;
    let kept = fixture.sink.of(&queue.shard);
    assert_eq!(kept.len(), 200);
    assert_eq!(kept[0].id, id("m300"));
    let loss = Loss { shard: queue.shard.clone(), lost_to_ms: kept[0].at_ms };
    assert_eq!(fixture.sink.losses(), [(0, loss)], "reported before the events that follow");
    relay.stop().await;
}

#[tokio::test]
async fn q19_a_loss_is_reported_until_the_sink_has_it_even_if_relays_die() {
    let outbox = OutboxBound { events_max: 200, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let queue = fixture.queue("q").await;
    for n in 0..300 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    fixture.sink.fail(true);
    for round in 1..4 {
        let relay = fixture.relay().await;
        eventually("a refused loss", async || fixture.sink.refused() >= round * 2).await;
        relay.die();
    }
    assert_eq!((fixture.sink.losses(), fixture.sink.of(&queue.shard)), (vec![], vec![]), "nothing before the loss");
    fixture.sink.fail(false);
    let relay = fixture.relay().await;
    fixture.settled(&queue).await;
    let first = fixture.sink.of(&queue.shard)[0].clone();
    assert_eq!(first.id, id("m100"));
    let loss = Loss { shard: queue.shard.clone(), lost_to_ms: first.at_ms };
    let reported = fixture.sink.losses();
    // The loss of the last relay may come twice, not another one.
    assert!(!reported.is_empty() && reported.iter().all(|(_, other)| *other == loss), "{reported:?}");
    assert_eq!(reported[0].0, 0);
    // A jump of the numbers that is no loss: a queue was read to its end, deleted and created again.
    for _ in 0..2 {
        let queue = fixture.queue("p").await;
        queue.put([message("again", 1)]).await;
        queue.purge(true).await;
        fixture.settled(&queue).await;
        fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    }
    assert_eq!(fixture.sink.losses().len(), reported.len());
    relay.stop().await;
}

#[tokio::test]
async fn q19_a_message_whose_end_was_given_up_is_uncertain() {
    let outbox = OutboxBound { events_max: 100, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let folder = tempfile::TempDir::new().expect("a folder");
    let history = Embedded::open(EmbeddedOptions::new(folder.path().join("history.db"))).expect("a new history");
    let history = Arc::new(history);
    let relay = async || {
        let options = RelayOptions { leader_lease_ms: 1_000, events_max: 100, watermark_every: Duration::ZERO };
        let relay = Relay::new(fixture.store.clone(), history.clone(), options, OutboxHealth::default());
        let stop = CancellationToken::new();
        RunningRelay { task: tokio::spawn(relay.run(stop.clone())), stop, health: OutboxHealth::default() }
    };
    let (queue, other) = (fixture.queue("q").await, fixture.queue("other").await);
    queue.put((0..10).map(|n| message(&format!("m{n}"), 1))).await;
    other.put([message("m0", 1)]).await;
    let running = relay().await;
    fixture.settled(&queue).await;
    fixture.settled(&other).await;
    running.stop().await;
    // Without a relay: the end of the ten messages is given up, because later events fill the outbox.
    queue.purge(true).await;
    for n in 0..200 {
        queue.put([message(&format!("later{n}"), 1)]).await;
    }
    let running = relay().await;
    fixture.settled(&queue).await;
    running.stop().await;

    let api = HistoryApi::new(history.clone());
    let request = pb::SearchMessagesRequest { page_size: 1_000, ..Default::default() };
    let found = api.search_messages(Request::new(request)).await.expect("a response").into_inner().messages;
    let is_uncertain = |queue: &str, id: &str| {
        let mut found = found.iter().filter(|message| message.queue == queue && message.id == id);
        found.next().unwrap_or_else(|| panic!("{queue} {id}")).uncertain
    };
    for n in 0..10 {
        assert!(is_uncertain("q", &format!("m{n}")), "m{n} is pending in the index and not in the queue");
    }
    assert!(!is_uncertain("other", "m0") && !is_uncertain("q", "later199"));
    let request = pb::IndexedDepthRequest { queue: "q".to_owned(), ..Default::default() };
    let depth = api.indexed_depth(Request::new(request)).await.expect("a response").into_inner();
    let uncertain = depth.uncertain.expect("some are uncertain");
    assert!(uncertain.pending >= 10 && uncertain.pending < depth.counts.expect("counts").pending, "{depth:?}");
}
