//! A Work stream with many subscriptions: each has its queue, its credits and its end.

use super::work::{Stream, lease_ref, start};
use super::{because, invalid, refused, refused_item};
use crate::testing::*;
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as pb;
use tonic::Code;

const QUEUES: u32 = 50;

fn name(number: u32) -> String {
    format!("q{number}")
}

/// Begins the subscription of this number to the queue that is named after it.
fn subscribe(stream: &Stream, number: u32, credits: u32) {
    let request = pb::WorkRequest { subscription: number, credits, ..start(&name(number), true) };
    stream.send.send(request).unwrap();
}

/// A stream that is subscribed to `QUEUES` queues, each with one message and one credit.
async fn many(server: &mut TestServer) -> Stream {
    for number in 1..=QUEUES {
        server.enqueue(&name(number), &[&format!("m{number}")]).await;
    }
    let stream = Stream::open(server).await;
    (1..=QUEUES).for_each(|number| subscribe(&stream, number, 1));
    stream
}

/// The leases of as many responses, by their subscriptions.
async fn leases(stream: &mut Stream, count: u32) -> BTreeMap<u32, pb::Lease> {
    let mut leases = BTreeMap::new();
    while leases.len() < count as usize {
        let response = stream.next().await.unwrap().unwrap();
        leases.extend(response.leases.into_iter().map(|lease| (response.subscription, lease)));
    }
    leases
}

fn complete(subscription: u32, lease: &pb::Lease) -> pb::WorkRequest {
    pb::WorkRequest { subscription, complete: vec![lease_ref(lease)], ..Default::default() }
}

/// How the subscription of the next response has ended: its number and status.
async fn next_end(stream: &mut Stream) -> (u32, pb::WorkResponse) {
    let mut response = stream.next().await.unwrap().unwrap();
    let number = std::mem::take(&mut response.subscription);
    (number, response)
}

#[tokio::test]
async fn q7_a_stream_serves_many_queues_each_by_its_number() {
    let mut server = TestServer::start().await;
    let mut stream = many(&mut server).await;
    let leases = leases(&mut stream, QUEUES).await;
    for (number, lease) in &leases {
        assert_eq!(lease.id, format!("m{number}"));
        stream.send.send(complete(*number, lease)).unwrap();
    }
    for _ in 1..=QUEUES {
        let response = stream.next().await.unwrap().unwrap();
        let [result] = &response.completed[..] else { panic!("{response:?}") };
        assert_eq!(result.id, format!("m{}", response.subscription));
        assert!(matches!(result.outcome, Some(pb::transition_result::Outcome::Ok(_))), "{result:?}");
    }
    // One has no credit: it gets nothing, and the others do.
    server.enqueue(&name(1), &["later"]).await;
    server.enqueue(&name(2), &["later"]).await;
    stream.send.send(pb::WorkRequest { subscription: 2, credits: 1, ..Default::default() }).unwrap();
    let response = stream.next().await.unwrap().unwrap();
    assert_eq!((response.subscription, response.leases[0].id.as_str()), (2, "later"));
    assert_eq!(server.depth(&name(1)).await.pending, 1);
    // The end of the stream is the end of all.
    drop(stream);
    server.until_depth(&name(2), |depth| depth.running == 0 && depth.pending == 1).await;
}

#[tokio::test]
async fn what_ends_one_subscription_leaves_the_others() {
    let mut server = TestServer::start().await;
    server.enqueue("q9", &["a"]).await;
    let mut stream = Stream::open(&server).await;
    subscribe(&stream, 1, 1);
    let bad = pb::WorkRequest { subscription: 3, credits: 1, ..start("a b", true) };
    stream.send.send(bad).unwrap();
    subscribe(&stream, 9, 1_000);
    stream.send.send(pb::WorkRequest { subscription: 9, credits: 1, ..Default::default() }).unwrap();
    server.enqueue("q12", &["b"]).await;
    subscribe(&stream, 12, 1);
    let (mut ends, mut leased) = (BTreeMap::new(), Vec::new());
    while ends.len() < 3 || leased.is_empty() {
        let (number, response) = next_end(&mut stream).await;
        match response.ended {
            Some(status) => drop(ends.insert(number, refused_item(&status))),
            None => leased.extend(response.leases.into_iter().map(|lease| (number, lease)).filter(|(of, _)| *of == 12)),
        }
    }
    let expected =
        [(1, because(Code::NotFound, "QUEUE_NOT_FOUND")), (3, invalid("start.queue")), (9, invalid("credits"))];
    assert_eq!(ends, BTreeMap::from(expected));
    server.until_depth("q9", |depth| depth.pending == 1 && depth.running == 0).await;
    // What is sent to one that has ended is ignored; the other works on.
    stream.send.send(complete(9, &leased[0].1)).unwrap();
    stream.send.send(complete(12, &leased[0].1)).unwrap();
    let response = stream.next().await.unwrap().unwrap();
    assert_eq!((response.subscription, response.completed.len()), (12, 1));
}

#[tokio::test]
async fn a_queue_that_is_deleted_ends_its_subscription_alone() {
    let mut server = TestServer::start().await;
    let mut stream = many(&mut server).await;
    let leased = leases(&mut stream, QUEUES).await;
    for number in [1, 2] {
        stream.send.send(pb::WorkRequest { subscription: number, credits: 1, ..Default::default() }).unwrap();
    }
    let request = pb::DeleteQueueRequest { name: name(1), force: true };
    server.admin.delete_queue(request).await.unwrap();
    // Its lease is revoked before that (Q23).
    let mut revoked = Vec::new();
    let ended = loop {
        let (number, response) = next_end(&mut stream).await;
        assert_eq!(number, 1, "{response:?}");
        revoked.extend(response.revoked);
        if let Some(ended) = response.ended {
            break ended;
        }
    };
    assert_eq!(revoked, [lease_ref(&leased[&1])]);
    assert_eq!(refused_item(&ended), because(Code::NotFound, "QUEUE_NOT_FOUND"));
    server.enqueue(&name(2), &["later"]).await;
    assert_eq!(leases(&mut stream, 1).await[&2].id, "later");
}

#[tokio::test]
async fn a_closed_subscription_answers_what_was_sent_and_releases_the_rest() {
    let mut server = TestServer::start().await;
    server.enqueue("q1", &["a", "b", "c"]).await;
    let mut stream = Stream::open(&server).await;
    subscribe(&stream, 1, 2);
    subscribe(&stream, 2, 0);
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(stream.next().await.unwrap().unwrap().leases);
    }
    stream.send.send(pb::WorkRequest { credits: 1, close: true, ..complete(1, &held[0]) }).unwrap();
    let (number, response) = next_end(&mut stream).await;
    assert_eq!((number, response.completed.len(), response.ended.is_none()), (1, 1, true), "{response:?}");
    let (number, response) = next_end(&mut stream).await;
    assert_eq!((number, response.ended.map(|status| status.code)), (1, Some(Code::Ok as i32)));
    server.until_depth("q1", |depth| depth.completed == 1 && depth.pending == 2 && depth.running == 0).await;
    // The number has been used; the next one is higher.
    server.enqueue("q3", &["d"]).await;
    subscribe(&stream, 3, 1);
    assert_eq!(leases(&mut stream, 1).await[&3].id, "d");
    // Subscription 0 is the stream, also if it has not begun.
    stream.send.send(pb::WorkRequest { close: true, ..Default::default() }).unwrap();
    assert!(stream.next().await.unwrap().is_none());
}

#[tokio::test]
async fn q7_a_forced_cancel_reaches_the_subscription_that_has_the_lease() {
    let mut server = TestServer::start().await;
    let mut stream = many(&mut server).await;
    let leases = leases(&mut stream, QUEUES).await;
    let cancellation = pb::Cancellation { id: "m7".to_owned(), force: true, ..Default::default() };
    let request = pb::CancelRequest { queue: name(7), cancellations: vec![cancellation] };
    server.queue.cancel(request).await.unwrap();
    let response = stream.next().await.unwrap().unwrap();
    let expected = pb::WorkResponse { subscription: 7, revoked: vec![lease_ref(&leases[&7])], ..Default::default() };
    assert_eq!(response, expected);
}

#[tokio::test]
async fn numbers_that_do_not_rise_end_the_stream() {
    let mut server = TestServer::start().await;
    server.create("q1", pb::QueueConfig::default()).await;
    let begin = |subscription| pb::WorkRequest { subscription, ..start("q1", true) };
    let credit = |subscription| pb::WorkRequest { subscription, credits: 1, ..Default::default() };
    for (requests, field) in [
        (vec![credit(1)], "start"),
        (vec![begin(2), begin(2)], "start"),
        (vec![begin(2), begin(1)], "start"),
        (vec![begin(0), begin(0)], "start"),
        (vec![begin(1), credit(2)], "subscription"),
    ] {
        let mut stream = Stream::open(&server).await;
        requests.into_iter().for_each(|request| stream.send.send(request).unwrap());
        assert_eq!(refused(stream.next().await), invalid(field));
    }
    // Subscription 0 is the stream: its fault ends both.
    let mut stream = Stream::open(&server).await;
    stream.send.send(begin(0)).unwrap();
    stream.send.send(begin(1)).unwrap();
    stream.send.send(pb::WorkRequest { credits: 1_001, ..Default::default() }).unwrap();
    assert_eq!(refused(stream.next().await), invalid("credits"));
    let mut stream = Stream::open(&server).await;
    stream.send.send(begin(0)).unwrap();
    stream.send.send(pb::WorkRequest { close: true, ..Default::default() }).unwrap();
    assert_eq!(stream.next().await.unwrap(), None);
}
