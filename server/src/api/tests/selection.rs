//! ChangeMessages on the wire (Q25).

use super::{because, invalid, refused};
use crate::testing::*;
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::change_messages_request::{Cancel, Change, Redrive, Update};
use tonic::Code;

fn request(states: &[pb::State], change: Change) -> pb::ChangeMessagesRequest {
    let states = states.iter().map(|state| (*state).into()).collect();
    pb::ChangeMessagesRequest {
        queue: "q".to_owned(),
        selection: Some(pb::Selection { states, ..pb::Selection::default() }),
        change: Some(change),
        ..pb::ChangeMessagesRequest::default()
    }
}

fn selecting(fill: impl Fn(&mut pb::Selection)) -> pb::ChangeMessagesRequest {
    let mut request = request(&[pb::State::Pending], cancel(""));
    fill(request.selection.as_mut().unwrap());
    request
}

fn cancel(reason: &str) -> Change {
    Change::Cancel(Cancel { reason: reason.to_owned() })
}

fn update(priority: Option<i64>, visible_at_ms: Option<i64>) -> Change {
    Change::Update(Update { priority, visible_at_ms })
}

async fn change(server: &mut TestServer, request: pb::ChangeMessagesRequest) -> pb::ChangeMessagesResponse {
    server.admin.change_messages(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn q25_a_selection_is_changed_page_by_page() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig { max_depth: Some(5), ..pb::QueueConfig::default() }).await;
    server.enqueue("q", &["a", "b", "c", "d", "e"]).await;
    let first = pb::ChangeMessagesRequest { page_size: 2, ..request(&[pb::State::Pending], cancel("unwanted")) };
    let dry_run = pb::ChangeMessagesRequest { dry_run: true, ..first.clone() };
    let counted = change(&mut server, dry_run).await;
    assert_eq!((counted.examined, counted.matched, counted.changed), (2, 2, 0));
    assert_eq!(server.depth("q").await.pending, 5);
    let mut next = first;
    for examined in [2, 2, 1] {
        let page = change(&mut server, next.clone()).await;
        assert_eq!((page.examined, page.matched, page.changed), (examined, examined, examined));
        next.page_token = page.next_page_token;
    }
    assert_eq!((next.page_token.as_str(), server.depth("q").await.canceled), ("", 5));
    let get = pb::GetMessageRequest { queue: "q".to_owned(), id: "a".to_owned() };
    assert_eq!(server.admin.get_message(get).await.unwrap().into_inner().message.unwrap().reason, "unwanted");
    server.enqueue("q", &["f"]).await;
    let redriven = change(&mut server, request(&[pb::State::Canceled], Change::Redrive(Redrive {}))).await;
    assert_eq!((redriven.matched, redriven.changed, redriven.refused.len()), (5, 4, 1));
    let Some(pb::transition_result::Outcome::Error(status)) = &redriven.refused[0].outcome else {
        panic!("{redriven:?}")
    };
    assert_eq!((redriven.refused[0].id.as_str(), status.code), ("e", Code::ResourceExhausted as i32));
}

#[tokio::test]
async fn q25_a_bad_request_gets_one_clear_error_and_changes_nothing() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    server.enqueue("q", &["a"]).await;
    let pending = [pb::State::Pending];
    let good = || request(&pending, cancel(""));
    for (request, field) in [
        (pb::ChangeMessagesRequest { queue: String::new(), ..good() }, "queue"),
        (pb::ChangeMessagesRequest { selection: None, ..good() }, "selection.states"),
        (pb::ChangeMessagesRequest { change: None, ..good() }, "change"),
        (pb::ChangeMessagesRequest { page_size: -1, ..good() }, "page_size"),
        (pb::ChangeMessagesRequest { page_size: 1_001, ..good() }, "page_size"),
        (pb::ChangeMessagesRequest { page_token: "nonsense".to_owned(), ..good() }, "page_token"),
        (pb::ChangeMessagesRequest { page_token: "x".repeat(5_000), ..good() }, "page_token"),
        (selecting(|s| s.states = vec![7]), "selection.states"),
        (selecting(|s| s.states = vec![-1]), "selection.states"),
        (selecting(|s| s.states.push(pb::State::Completed.into())), "selection.states"),
        (selecting(|s| s.filter = Some(filter("", "v"))), "selection.filter"),
        (selecting(|s| s.reason = "x".repeat(256)), "selection.reason"),
        (selecting(|s| s.reason_contains = "a\nb".to_owned()), "selection.reason_contains"),
        (selecting(|s| s.entered_from_ms = -1), "selection.entered_from_ms"),
        (selecting(|s| s.entered_to_ms = i64::MAX), "selection.entered_to_ms"),
        (request(&pending, Change::Redrive(Redrive {})), "selection.states"),
        (request(&pending, cancel(&"x".repeat(256))), "cancel.reason"),
        (request(&pending, update(None, None)), "update.priority"),
        (request(&pending, update(None, Some(-1))), "update.visible_at_ms"),
        (request(&[pb::State::Running], update(None, Some(1))), "selection.states"),
    ] {
        assert_eq!(refused(server.admin.change_messages(request.clone()).await), invalid(field), "{request:?}");
        assert_eq!(server.depth("q").await.pending, 1);
    }
    let unknown = pb::ChangeMessagesRequest { queue: "unknown".to_owned(), ..good() };
    assert_eq!(refused(server.admin.change_messages(unknown).await), because(Code::NotFound, "QUEUE_NOT_FOUND"));
}
