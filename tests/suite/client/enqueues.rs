//! Q27: Enqueues that are under way together share a stream, and no caller notices.

use crate::client::harness::{World, soon, until};
use crate::client::queue_script::{HOLD, QueueScript, Streams};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tallystone_client::{Applied, Client, Code, Enqueued, Error, NewMessage, QueueConfig};
use tokio::task::{JoinHandle, JoinSet};

async fn enqueue(client: &Client, id: &str) -> Result<Enqueued, Error> {
    let results = client.enqueue("q", vec![NewMessage::new(id, "payload")]).await?;
    Ok(results.into_iter().next().expect("a result")?)
}

/// A unary call that stays under way until the gate opens, so that no later call is alone.
async fn hold(script: &QueueScript, client: &Client) -> JoinHandle<()> {
    script.gate.send_replace(false);
    let client = client.clone();
    let held = tokio::spawn(async move { drop(enqueue(&client, HOLD).await.expect("an answer")) });
    until("the held call", || script.unary.load(SeqCst) == 1).await;
    held
}

/// Calls until one is on a stream; returns its answer. Those before went alone, since none was open.
async fn first_streamed(script: &QueueScript, client: &Client) -> Result<Enqueued, Error> {
    soon("a call on a stream", async {
        for number in 0.. {
            let answer = enqueue(client, &format!("first-{number}")).await;
            if script.streamed.load(SeqCst) > 0 {
                return answer;
            }
            answer.expect("a unary answer");
        }
        unreachable!("numbers end late");
    })
    .await
}

/// So many callers, each with so many calls, all of which succeed.
async fn crowd(client: &Client, callers: usize, calls: usize) {
    let mut all = JoinSet::new();
    for caller in 0..callers {
        let client = client.clone();
        all.spawn(async move {
            for call in 0..calls {
                let id = format!("{caller}-{call}");
                assert_eq!(enqueue(&client, &id).await.expect("an answer").id, id);
            }
        });
    }
    soon("all calls", all.join_all()).await;
}

#[tokio::test]
async fn q27_a_caller_that_is_alone_makes_unary_calls() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Served).await;
    crowd(&client, 1, 50).await;
    assert_eq!((script.unary.load(SeqCst), script.opened.load(SeqCst)), (50, 0));
}

#[tokio::test]
async fn q27_callers_that_are_many_share_one_stream() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Served).await;
    crowd(&client, 64, 50).await;
    let (unary, streamed) = (script.unary.load(SeqCst), script.streamed.load(SeqCst));
    assert_eq!((unary + streamed, script.opened.load(SeqCst)), (3_200, 1));
    assert!(streamed > unary, "{unary} unary calls, {streamed} on the stream");
    assert!(script.messages.lock().unwrap().values().all(|count| *count == 1));
    // Its stream ends with the client.
    drop(client);
    soon("the end of the stream", script.closed.subscribe().wait_for(|closed| *closed == 1)).await.unwrap();
}

#[tokio::test]
async fn q27_a_large_request_goes_alone() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Served).await;
    let _held = hold(&script, &client).await;
    first_streamed(&script, &client).await.expect("an answer");
    let before = (script.unary.load(SeqCst), script.streamed.load(SeqCst));
    let large = (0..10).map(|n| NewMessage::new(format!("large-{n}"), vec![0; 32 * 1024])).collect();
    client.enqueue("q", large).await.expect("an answer");
    assert_eq!((script.unary.load(SeqCst), script.streamed.load(SeqCst)), (before.0 + 1, before.1));
}

#[tokio::test]
async fn q27_an_older_server_gets_unary_calls() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Absent).await;
    crowd(&client, 64, 20).await;
    let counts = (script.unary.load(SeqCst), script.streamed.load(SeqCst), script.opened.load(SeqCst));
    assert_eq!(counts, (1_280, 0, 1), "it is not tried again at once");
}

#[tokio::test]
async fn q27_a_call_on_a_stream_that_breaks_may_have_acted_and_is_repeated_with_its_id() {
    let (script, client, _tasks) = QueueScript::serve(Streams::BreakOnce).await;
    let _held = hold(&script, &client).await;
    let broken = first_streamed(&script, &client).await;
    assert!(matches!(broken, Err(Error::Unavailable { applied: Applied::Unknown, .. })), "{broken:?}");

    let (script, client, _tasks) = QueueScript::serve(Streams::BreakOnce).await;
    let _held = hold(&script, &client).await;
    let patient = client.with_retry_for(Duration::from_secs(30));
    let id = first_streamed(&script, &patient).await.expect("the answer of the second attempt").id;
    assert_eq!(script.messages.lock().unwrap()[&id], 2);
}

#[tokio::test]
async fn o8_a_call_that_its_caller_drops_is_taken_back() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Silent).await;
    let _held = hold(&script, &client).await;
    let calls = {
        let (script, client) = (script.clone(), client.clone());
        tokio::spawn(async move { first_streamed(&script, &client).await.map(drop) })
    };
    until("a call on the stream", || script.streamed.load(SeqCst) == 1).await;
    calls.abort();
    soon("its end", script.canceled.subscribe().wait_for(|canceled| *canceled == 1)).await.unwrap();
}

#[tokio::test]
async fn q27_a_call_on_a_stream_has_the_deadline_of_its_client() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Silent).await;
    let _held = hold(&script, &client).await;
    let hasty = client.with_call_timeout(Duration::from_millis(1_234));
    let late = first_streamed(&script, &hasty).await;
    assert!(
        matches!(&late, Err(Error::Unavailable { applied: Applied::Unknown, message }) if message.contains("1.234s")),
        "{late:?}"
    );
    assert_eq!(script.latest.lock().unwrap().as_ref().expect("a call").timeout_ms, 1_234);
    soon("its end", script.canceled.subscribe().wait_for(|canceled| *canceled == 1)).await.unwrap();
}

#[tokio::test]
async fn o3_calls_go_on_while_a_server_closes_its_stream() {
    let (script, client, _tasks) = QueueScript::serve(Streams::CloseOnce).await;
    crowd(&client, 16, 200).await;
    soon("the end of the first stream", script.closed.subscribe().wait_for(|closed| *closed >= 1)).await.unwrap();
    assert!(script.messages.lock().unwrap().values().all(|count| *count == 1), "no call was repeated");
}

#[tokio::test]
async fn q27_the_answers_of_a_real_server_are_those_of_unary_calls() {
    let World { client, wire, .. } = &World::new().await;
    client.create_queue("q", QueueConfig::simple()).await.unwrap();
    let mut all = JoinSet::new();
    for caller in 0..32 {
        let client = client.clone();
        all.spawn(async move {
            for call in 0..50 {
                let id = format!("{caller}-{call}");
                let first = enqueue(&client, &id).await.expect("an answer");
                assert_eq!(first.id, id);
                assert_eq!(enqueue(&client, &id).await.expect("an answer"), first, "Q10: the same again");
                let other = client.enqueue("q", vec![NewMessage::new(&id, "other")]).await.expect("a result");
                assert_eq!(other[0].as_ref().expect_err("a refusal").reason, "ID_CONFLICT");
                let answer = client.enqueue("bad name", Vec::new()).await;
                let refused = answer.as_ref().err().and_then(Error::refused).expect("a refusal");
                let what = (refused.code, refused.field.as_deref());
                assert_eq!(what, (Code::InvalidArgument, Some("queue")));
            }
        });
    }
    let all = tokio::spawn(all.join_all());
    // Calls that the cuts break are repeated.
    for _ in 0..5 {
        let more = client.depth("q", None).await.unwrap().pending + 50;
        while !all.is_finished() && client.depth("q", None).await.unwrap().pending < more {}
        wire.cut();
    }
    assert_eq!(soon("all calls", all).await.unwrap().len(), 32);
    assert_eq!(client.depth("q", None).await.unwrap().pending, 1_600);
}

#[tokio::test]
async fn q27_a_client_that_is_dropped_while_calls_are_under_way_keeps_the_stream_for_them() {
    let (script, client, _tasks) = QueueScript::serve(Streams::Served).await;
    let held = hold(&script, &client).await;
    first_streamed(&script, &client).await.expect("an answer");
    let last: Arc<Client> = Arc::new(client);
    let call = {
        let last = last.clone();
        tokio::spawn(async move { enqueue(&last, "last").await.map(drop) })
    };
    drop(last);
    soon("its answer", call).await.unwrap().expect("an answer");
    script.gate.send_replace(true);
    held.await.unwrap();
    soon("the end of the stream", script.closed.subscribe().wait_for(|closed| *closed == 1)).await.unwrap();
}
