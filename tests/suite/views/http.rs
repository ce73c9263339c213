//! What callers see.

use super::stage::{Http, Stage};
use super::view;
use crate::counting::house::House;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tallystone_tests::http_client;
use tallystone_views::{ViewNamespace, ViewsConfig, WindowKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start() -> Stage {
    Stage::start(vec![ViewNamespace::default()], 4).await
}

#[tokio::test]
async fn v1_v2_the_seeds_bodies_are_counted_and_fifty_refreshes_count_once() {
    let Stage { http, .. } = &start().await;
    let path = "/v1/videos/cats/views";
    let (status, counts) = http.get(path).await;
    assert_eq!((status, &counts["videoId"], &counts["viewCount"]), (200, &json!("cats"), &json!(0)));
    join_all((0..50).map(|_| async { http.accepted("/v1/views", &view("cats", "mia")).await })).await;
    http.accepted("/v1/views", &view("cats", "tom")).await;
    let counts = http.until_counts(path, 2, 51, 2).await;
    assert!(counts["ageMs"].is_u64() && counts["day"].is_string(), "{counts}");
    assert_eq!(http.get("/v1/videos/dogs/views").await.1["viewCount"], 0);
}

#[tokio::test]
async fn v2_a_wrong_clock_of_a_client_counts_no_view_twice() {
    let Stage { http, .. } = &start().await;
    for timestamp in
        ["0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-11-25T08:00:00+05:30", "9999-12-30T21:59:59.999Z"]
    {
        let body = json!({"videoId": "v", "userId": "u", "timestamp": timestamp});
        http.accepted("/v1/views", &body).await;
    }
    http.until_counts("/v1/videos/v/views", 1, 4, 1).await;
}

#[tokio::test]
async fn v1_bad_input_gets_one_clear_error_and_changes_nothing() {
    let Stage { http, .. } = &start().await;
    let long = "x".repeat(101);
    for (body, status, reason, field) in [
        (view("", "u").to_string(), 400, "INVALID_ARGUMENT", json!("videoId")),
        (view(&long, "u").to_string(), 400, "INVALID_ARGUMENT", json!("videoId")),
        (view("v", "a\nb").to_string(), 400, "INVALID_ARGUMENT", json!("userId")),
        (
            json!({"videoId": "v", "userId": "u", "timestamp": "noon"}).to_string(),
            400,
            "INVALID_ARGUMENT",
            json!("timestamp"),
        ),
        (json!({"videoId": "v", "userId": "u"}).to_string(), 400, "INVALID_ARGUMENT", json!("body")),
        (json!({"videoId": "v", "userId": 7, "timestamp": "noon"}).to_string(), 400, "INVALID_ARGUMENT", json!("body")),
        ("{".to_owned(), 400, "INVALID_ARGUMENT", json!("body")),
        (String::new(), 400, "INVALID_ARGUMENT", json!("body")),
    ] {
        let (found, answer) = http.try_call(Method::POST, "/v1/views", body.clone()).await.expect("an answer");
        let error = &answer["error"];
        assert_eq!((found, &error["reason"], &error["field"]), (status, &json!(reason), &field), "{body}: {answer}");
    }
    for (method, path, status) in [
        (Method::POST, "/other/v1/views", 404),
        (Method::GET, "/other/v1/videos/v/views", 404),
        (Method::GET, "/v1/views", 405),
        (Method::DELETE, "/v1/videos/v/views", 405),
        (Method::GET, "/v1/videos/v/views?day=today", 400),
        (Method::GET, "/v1/videos/v", 404),
    ] {
        let answered = http.try_call(method.clone(), path, view("v", "u").to_string()).await.expect("an answer");
        assert_eq!(answered.0, status, "{method} {path}: {}", answered.1);
    }
    http.accepted("/v1/views", &view("v", "u")).await;
    http.until_counts("/v1/videos/v/views", 1, 1, 1).await;
}

#[tokio::test]
async fn v1_only_the_path_selects_the_namespace() {
    let house = House::without_rollups().await;
    let log = house.redis.url();
    let shop = "shop.example";
    let namespaces =
        vec![ViewNamespace::default(), ViewNamespace { name: shop.to_owned(), ..ViewNamespace::default() }];
    let views = ViewsConfig { namespaces, http_hosts: vec![shop.to_owned()], ..ViewsConfig::default() };
    let Stage { http, .. } = &Stage::start_on(house, &log, views).await;
    let request = http_client().post(format!("{}/v1/views", http.url)).header("host", shop).json(&view("v", "u"));
    assert_eq!(request.send().await.expect("an answer").status(), 202);
    http.until_count("/v1/videos/v/views", 1).await;
    assert_eq!(http.get(&format!("/{shop}/v1/videos/v/views")).await.1["viewCount"], 0);
    http.accepted(&format!("/{shop}/v1/views"), &view("v", "tom")).await;
    http.until_count(&format!("/{shop}/v1/videos/v/views"), 1).await;
    http.until_count("/v1/videos/v/views", 1).await;
}

#[tokio::test]
async fn v1_the_good_views_of_a_batch_are_accepted() {
    let Stage { http, .. } = &start().await;
    let bad = json!({"videoId": "b0", "userId": "u"});
    let mut views: Vec<Value> = (0..200).map(|user| view(&format!("b{}", user % 7), &user.to_string())).collect();
    views[3] = bad;
    views[5] = view("b5", "");
    let (status, answer) = http.post("/v1/views:batch", &json!({"views": views})).await;
    let results = answer["results"].as_array().expect("results");
    assert_eq!((status, results.len()), (202, 200), "{answer}");
    let refused: Vec<usize> = (0..200).filter(|number| results[*number] != json!({})).collect();
    assert_eq!(refused, [3, 5]);
    assert_eq!(results[5]["error"]["field"], "views[5].userId");
    for video in 0..7 {
        let expected = (0..200).filter(|user| user % 7 == video && ![3, 5].contains(user)).count() as u64;
        http.until_count(&format!("/v1/videos/b{video}/views"), expected).await;
    }
    let (status, answer) = http.post("/v1/views:batch", &json!({"views": [view("b5", ""), view("", "u")]})).await;
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("views[0].userId")), "none is accepted: {answer}");
    let too_many: Vec<Value> = (0..1_001).map(|user| view("c", &user.to_string())).collect();
    for bad in [json!({"views": too_many}), json!({"views": []}), json!({})] {
        assert_eq!(http.post("/v1/views:batch", &bad).await.0, 400);
    }
}

#[tokio::test]
async fn v6_each_namespace_counts_its_kinds_from_one_ingest() {
    let plain = ViewNamespace {
        name: "plain".to_owned(),
        window: WindowKind::Tumbling,
        window_ms: 7 * 86_400_000,
        page_views: false,
        daily_visitors: false,
        ..ViewNamespace::default()
    };
    let Stage { http, .. } = &Stage::start(vec![ViewNamespace::default(), plain], 2).await;
    for user in ["a", "a", "b"] {
        http.accepted("/v1/views", &view("v", user)).await;
        http.accepted("/plain/v1/views", &view("v", user)).await;
    }
    http.until_counts("/v1/videos/v/views", 2, 3, 2).await;
    let counts = http.until_count("/plain/v1/videos/v/views", 2).await;
    assert_eq!((&counts["pageViews"], &counts["dailyVisitors"]), (&Value::Null, &Value::Null), "{counts}");
    let day = http.get("/v1/videos/v/views?day=2020-02-29").await.1;
    assert_eq!((&day["day"], &day["dailyVisitors"], &day["viewCount"]), (&json!("2020-02-29"), &json!(0), &json!(2)));
}

#[tokio::test]
async fn v1_calls_may_be_pipelined_and_sent_over_http_2() {
    let Stage { http, .. } = &start().await;
    let address = http.url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    let call = |user: usize| {
        let body = view("p", &user.to_string()).to_string();
        let head = format!("POST /v1/views HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
        format!("{head}content-length: {}\r\n\r\n{body}", body.len())
    };
    let calls: String = (0..64).map(call).collect();
    connection.write_all(calls.as_bytes()).await.expect("sent");
    let (mut answered, mut part) = (String::new(), [0; 4_096]);
    while answered.matches("HTTP/1.1 202").count() < 64 {
        let read = connection.read(&mut part).await.expect("answers");
        assert!(read > 0, "{answered}");
        answered += std::str::from_utf8(&part[..read]).expect("text");
    }
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (h2, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let posts = (64..80).map(async |user: usize| {
        let request = http::Request::post(format!("{}/v1/views", http.url)).header("content-type", "application/json");
        let mut h2 = h2.clone().ready().await.expect("a connection");
        let (response, mut body) = h2.send_request(request.body(()).expect("a request"), false).expect("sent");
        body.send_data(view("p", &user.to_string()).to_string().into(), true).expect("sent");
        response.await.expect("an answer").status().as_u16()
    });
    assert!(join_all(posts).await.iter().all(|status| *status == 202));
    Http::new(http.url.clone()).until_count("/v1/videos/p/views", 80).await;
}
