//! Pages and their tokens.

use super::*;
use tonic::{Code, Status};
use tonic_types::StatusExt;

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

#[tokio::test]
async fn q20_the_pages_of_a_search_are_complete() {
    let server = TestServer::open().await;
    let events: Vec<Recorded> = (1..=25).map(|n| event(&format!("m{n}"), n, 1)).collect();
    server.record(&events).await;
    let mut client = server.client.clone();
    let mut request = pb::SearchMessagesRequest { page_size: 7, worker: "w".to_owned(), ..Default::default() };
    let mut pages = Vec::new();
    loop {
        let response = client.search_messages(request.clone()).await.expect("a page").into_inner();
        pages.push(response.messages.iter().map(|message| message.sequence).collect::<Vec<_>>());
        // A message that arrives between pages is before all of them.
        server.record(&[event("new", 100 + pages.len() as u64, 1)]).await;
        request.page_token = response.next_page_token;
        // Each page may have another size.
        request.page_size = 9;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [7, 9, 9]);
    assert!(pages.concat().into_iter().eq((1..=25).rev()), "{pages:?}");
}

#[tokio::test]
async fn q20_the_pages_of_a_trace_and_their_gaps_are_complete() {
    let server = TestServer::open().await;
    let versions = [(1, 2), (1, 3), (1, 6), (1, 7), (2, 3), (2, 4)];
    let events: Vec<Recorded> = versions.map(|(sequence, version)| event("m", sequence, version)).into();
    server.record(&events).await;
    for limit in 1..=7 {
        let mut client = server.client.clone();
        let mut request = pb::TraceMessageRequest { limit, ..trace_of("m") };
        let (mut found, mut gaps) = (Vec::new(), Vec::new());
        loop {
            let response = client.trace_message(request.clone()).await.expect("a page").into_inner();
            assert!(response.transitions.len() <= limit as usize);
            found.extend(response.transitions.iter().map(|row| (row.sequence, row.version)));
            gaps.extend(response.gaps.iter().map(|gap| (gap.sequence, gap.first_version, gap.last_version)));
            request.page_token = response.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        assert_eq!(found, versions, "{limit}");
        assert_eq!(gaps, [(1, 1, 1), (1, 4, 5), (2, 1, 2)], "{limit}");
    }
}

#[tokio::test]
async fn q20_the_pages_of_a_long_trace_fit_the_default_limit_of_clients() {
    let server = TestServer::open().await;
    let events: Vec<Recorded> = (1..=10_000)
        .map(|version| {
            let mut recorded = event("m", 1, version);
            recorded.event.worker = "w".repeat(128);
            recorded.event.reason = "x".repeat(255);
            recorded
        })
        .collect();
    server.record(&events).await;
    let mut client = server.client.clone();
    let mut request = pb::TraceMessageRequest { limit: 10_000, ..trace_of("m") };
    let (mut found, mut pages) = (0, 0);
    loop {
        let response = client.trace_message(request.clone()).await.expect("below 4 MiB").into_inner();
        (found, pages) = (found + response.transitions.len(), pages + 1);
        request.page_token = response.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(found, 10_000);
    assert!((2..=4).contains(&pages), "{pages}");
}

#[tokio::test]
async fn q20_a_token_is_valid_for_its_query_only() {
    let server = TestServer::open().await;
    server.record(&[event("m", 1, 1), event("n", 2, 1), event("m", 3, 1)]).await;
    let mut client = server.client.clone();
    let request = pb::SearchMessagesRequest { page_size: 1, ..Default::default() };
    let page_token = client.search_messages(request.clone()).await.expect("a page").into_inner().next_page_token;
    let request = pb::SearchMessagesRequest { page_token: page_token.clone(), ..request };
    client.search_messages(request.clone()).await.expect("the next page");
    let other = pb::SearchMessagesRequest { worker: "other".to_owned(), ..request.clone() };
    let shorter = pb::SearchMessagesRequest { page_token: page_token[1..].to_owned(), ..request.clone() };
    for request in [other, shorter] {
        let refused = client.search_messages(request).await.expect_err("not its token");
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "PAGE_TOKEN_INVALID"));
        let field = refused.get_details_bad_request().expect("the field").field_violations.remove(0).field;
        assert_eq!(field, "page_token");
    }
    let request = pb::TraceMessageRequest { page_token, ..trace_of("m") };
    let refused = client.trace_message(request).await.expect_err("not its token");
    assert_eq!(reason(&refused), "PAGE_TOKEN_INVALID");
}

#[tokio::test]
async fn q20_the_pages_of_groups_are_complete() {
    let server = TestServer::open().await;
    let mut client = server.client.clone();
    let any = pb::IndexedDepthRequest { queue_prefix: Some(String::new()), ..Default::default() };
    let mut request = pb::IndexedDepthRequest { group_by_key: "k".to_owned(), page_size: 4, ..any.clone() };
    let mut pages = Vec::new();
    loop {
        let response = client.indexed_depth(request.clone()).await.expect("a page").into_inner();
        pages.push(response.groups.iter().map(|group| group.value.clone()).collect::<String>());
        request.page_token = response.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, ["0123", "4567", "89"]);
    let without = client.indexed_depth(any.clone()).await.expect("a response").into_inner();
    assert_eq!((without.groups, without.next_page_token), (vec![], String::new()));
    // A token is only for its own query.
    request = pb::IndexedDepthRequest { group_by_key: "k".to_owned(), page_size: 4, ..any };
    let page_token = client.indexed_depth(request.clone()).await.expect("a page").into_inner().next_page_token;
    let other = pb::IndexedDepthRequest { group_by_key: "other".to_owned(), page_token, ..request };
    let refused = client.indexed_depth(other).await.expect_err("another query");
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "PAGE_TOKEN_INVALID"));
}
