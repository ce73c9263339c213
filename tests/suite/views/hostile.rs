//! Callers that send what no good client does (V1).

use super::stage::{Http, Stage};
use super::view;
use reqwest::StatusCode;
use serde_json::json;
use tallystone_tests::http_client;
use tallystone_views::ViewNamespace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start() -> Stage {
    Stage::start(vec![ViewNamespace::default()], 2).await
}

/// Posts these bytes.
async fn post(http: &Http, path: &str, body: Vec<u8>) -> (StatusCode, String) {
    let client = http_client();
    let request = client.post(format!("{}{path}", http.url)).header("content-type", "application/json").body(body);
    let response = request.send().await.expect("an answer");
    (response.status(), response.text().await.expect("text"))
}

#[tokio::test]
async fn v1_hostile_bodies_are_refused_and_count_nothing() {
    let Stage { http, .. } = &start().await;
    let body = |video: &str, user: &str, more: &str| {
        format!(r#"{{"videoId":"{video}","userId":"{user}","timestamp":"2026-11-25T08:00:00Z"{more}}}"#)
    };
    let mut not_text = body("h", "u", "").into_bytes();
    not_text[12] = 0xFF;
    let bodies = [
        body("h", "u", r#","videoId":"h""#),
        body("h", "u", r#","userId":"w""#),
        body("h", "u", r#","more":1"#),
        body("h", "u", "}"),
        body("h", r"u\u0000", ""),
        body("h", "u\0", ""),
        body("h", r"\ud800", ""),
        body("h", "\u{7F}", ""),
        body("h", "\u{85}", ""),
        body(&"é".repeat(51), "u", ""),
        body("h", &"u".repeat(129), ""),
        body("h", "u", "").replace(r#""h""#, "1e999"),
        format!("\u{FEFF}{}", body("h", "u", "")),
        "null".to_owned(),
        "[]".to_owned(),
    ];
    let times = [
        "",
        "0",
        "2026-02-30T08:00:00Z",
        "2026-11-25T08:00:00",
        "-1",
        "9999-12-31T23:59:59Z",
        "2026-11-25T08:00Z\u{7F}",
    ];
    let bodies = bodies.into_iter().map(String::into_bytes).chain([not_text]);
    let bodies =
        bodies.chain(times.map(|at| json!({"videoId": "h", "userId": "u", "timestamp": at}).to_string().into()));
    for bad in bodies {
        let shown = String::from_utf8_lossy(&bad).into_owned();
        let (status, answer) = post(http, "/v1/views", bad).await;
        assert_eq!(status, 400, "{shown}: {answer}");
        assert!(answer.contains("INVALID_ARGUMENT"), "{shown}: {answer}");
    }
    let (status, answer) = post(http, "/v1/views", body(&"h".repeat(8 << 20), "u", "").into()).await;
    assert_eq!(status, 413, "{answer}");
    let twice = format!(r#"{{"views":[{0}],"views":[{0}]}}"#, body("h", "u", ""));
    assert_eq!(post(http, "/v1/views:batch", twice.into()).await.0, 400);
    // None of them is in the log.
    http.accepted("/v1/views", &view("h", "good")).await;
    http.until_counts("/v1/videos/h/views", 1, 1, 1).await;
}

#[tokio::test]
async fn v1_a_batch_of_one_pair_with_a_bad_item_counts_once() {
    let Stage { http, .. } = &start().await;
    let mut views = vec![view("v", "u"); 1_000];
    views[500] = json!({"videoId": "v\0", "userId": "u", "timestamp": "2026-11-25T08:00:00Z"});
    let (status, answer) = http.post("/v1/views:batch", &json!({"views": views})).await;
    assert_eq!((status, &answer["results"][500]["error"]["field"]), (202, &json!("views[500].videoId")), "{answer}");
    http.until_counts("/v1/videos/v/views", 1, 999, 1).await;
}

#[tokio::test]
async fn v1_the_longest_and_the_strangest_ids_count() {
    let Stage { http, .. } = &start().await;
    let ids = [
        ("é".repeat(50), "é".repeat(64)),
        ("a/b?c#d%41".to_owned(), " ".to_owned()),
        ("{0}\"\\".to_owned(), "*".to_owned()),
    ];
    for (video, user) in &ids {
        http.accepted("/v1/views", &view(video, user)).await;
    }
    for (video, _) in &ids {
        let encoded: String = video.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let counts = http.until_counts(&format!("/v1/videos/{encoded}/views"), 1, 1, 1).await;
        assert_eq!(counts["videoId"], **video);
    }
}

/// Sends these bytes, and returns the statuses of at most so many answers; fewer if the server closes the connection before.
async fn statuses(http: &Http, sent: &str, most: usize) -> Vec<u16> {
    const LINE: &str = "HTTP/1.1 ";
    let mut connection = TcpStream::connect(http.url.trim_start_matches("http://")).await.expect("a connection");
    connection.write_all(sent.as_bytes()).await.expect("sent");
    let (mut answers, mut part) = (String::new(), [0; 4_096]);
    while answers.matches(LINE).count() < most {
        match connection.read(&mut part).await.expect("answers") {
            0 => break,
            read => answers += std::str::from_utf8(&part[..read]).expect("text"),
        }
    }
    answers.split(LINE).skip(1).filter_map(|answer| answer.get(..3)?.parse().ok()).collect()
}

#[tokio::test]
async fn v1_a_bad_request_in_a_pipeline_takes_no_answer_from_the_others() {
    let Stage { http, .. } = &start().await;
    let request = |headers: &str, body: &str| {
        format!("POST /v1/views HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}\r\n{body}")
    };
    let with_body = |body: &str| request(&format!("content-length: {}\r\n", body.len()), body);
    let good = |user: &str| with_body(&view("p", user).to_string());
    let bad = view("p", "bad").to_string();
    let two_lengths = request(&format!("content-length: 1\r\ncontent-length: {}\r\n", bad.len()), &bad);
    let unfinished = request(&format!("content-length: {}\r\n", bad.len() + 1), &bad);
    for (user, between, expected) in [
        ("body", with_body("{"), &[202, 400, 202][..]),
        ("type", with_body(&bad).replace("application/json", "text/plain"), &[202, 415, 202]),
        ("line", "BAD\r\n\r\n".to_owned(), &[202, 400]),
        ("length", two_lengths, &[202, 400]),
    ] {
        let sent = good(&format!("{user} before")) + &between + &good(&format!("{user} after"));
        assert_eq!(statuses(http, &sent, 3).await, expected, "{user}");
    }
    assert_eq!(statuses(http, &(good("end before") + &unfinished), 1).await, [202]);
    // Seven were accepted.
    http.accepted("/v1/views", &view("p", "last")).await;
    http.until_counts("/v1/videos/p/views", 8, 8, 8).await;
}
