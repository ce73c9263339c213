//! S6: Redis by TLS, as the user with the least rights that the documents name.

use super::secured::{Listening, Secured};
use crate::system::program;
use std::path::PathBuf;
use std::time::Duration;
use tallystone_client::{
    Cancellation, Client, Completion, CounterClient, Dequeue, Extension, Failure, Lease, NamespaceConfig, NewAdd,
    NewMessage, NewRecount, QueueConfig, Release, State, Threshold, Verdict, Worker,
};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_tests::{http_client, lasting_port, patient_connection};

const PASSWORD: &str = "S3cretPW";

/// The line for the ACL of Redis, as the documents have it, with the password of the test.
fn user() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/security.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let begin = page.find("user tallystone on").expect("the documents name the user");
    let line = page[begin..].split("```").next().expect("a block").replace("\\\n", " ");
    let rules = line.split_whitespace().skip(2).map(str::to_owned);
    let rules = rules.map(|rule| if rule.starts_with('>') { format!(">{PASSWORD}") } else { rule });
    let rules: Vec<String> = rules.collect();
    assert!(rules.iter().any(|rule| rule == "-@all"), "{rules:?}");
    rules
}

/// A Redis with TLS for clients that show a certificate, and with this user alone; the port of its tests has no TLS.
async fn redis(place: &Secured) -> (PrivateRedis, u16) {
    let (dir, port) = (place.dir.path().join("redis"), lasting_port());
    std::fs::create_dir(&dir).expect("a folder");
    let path = |path: &PathBuf| path.to_str().expect("text").to_owned();
    let tls = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path(&place.server.certificate)),
        ("--tls-key-file", path(&place.server.key)),
        ("--tls-ca-cert-file", path(&place.ca.file)),
    ];
    let extra_args = tls.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let redis = PrivateRedis::start(PrivateRedisOptions { extra_args, ..PrivateRedisOptions::new(&dir) });
    let redis = redis.await.expect("a Redis with TLS");
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("tallystone").arg(user());
    acl.query_async::<()>(&mut connection(&redis).await).await.expect("rules that Redis knows");
    (redis, port)
}

async fn connection(redis: &PrivateRedis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).expect("an address");
    patient_connection(&client).await.expect("a connection")
}

/// Leases the only runnable message of the queue, twice; it is then errored, redriven and canceled.
async fn give_up_and_redrive(client: &Client, queue: &str) {
    let lease = async || client.dequeue(Dequeue::new(queue).wait_ms(10_000)).await.expect("a lease").remove(0);
    let first = lease().await;
    let extended = client.extend_lease(queue, vec![Extension::of(&first)]).await.expect("an ExtendLease");
    extended[0].as_ref().expect("extended");
    let released = client.release(queue, vec![Release::of(&first).delay_ms(0)]).await.expect("a Release");
    released[0].as_ref().expect("released");
    let given_up = Release::of(&lease().await).verdict(Verdict::Error);
    client.release(queue, vec![given_up]).await.expect("a Release")[0].as_ref().expect("errored");
    client.redrive(queue, vec![first.id.clone()]).await.expect("a Redrive")[0].as_ref().expect("redriven");
    client.cancel(queue, vec![Cancellation::of(first.id)]).await.expect("a Cancel")[0].as_ref().expect("canceled");
}

/// Fills a queue with two shards by many calls at once, which share a stream. A Work stream completes its messages.
async fn work_on_shards(client: &Client) {
    const MESSAGES: usize = 50;
    client.create_queue("s", QueueConfig { shards: Some(2), ..QueueConfig::simple() }).await.expect("a queue");
    let enqueue = |id: usize| client.enqueue("s", vec![NewMessage::new(id.to_string(), "p")]);
    for enqueued in futures::future::join_all((0..MESSAGES).map(enqueue)).await {
        enqueued.expect("an Enqueue")[0].as_ref().expect("a message");
    }
    let (handled, mut all) = tokio::sync::mpsc::unbounded_channel();
    let handler = async move |lease: Lease| {
        handled.send(lease.id).expect("the test listens");
        Ok::<_, Failure>(())
    };
    let each_once = async {
        for _ in 0..MESSAGES {
            all.recv().await.expect("a message");
        }
    };
    let worker = Worker::new(client.clone(), "s");
    let ran = tokio::time::timeout(program::SOON, worker.run_until(each_once, handler)).await;
    let stats = ran.expect("all messages in time").expect("the worker ends well");
    assert_eq!(stats.completed, MESSAGES as u64, "{stats:?}");
}

/// Posts a view, whose log is in Redis until it has counted.
async fn count_a_view(place: &Secured, config: &str, counters: &Listening, counting: &CounterClient) {
    let url = format!("http://{}", counters.address);
    let views = place.start_with("views", &["--config", config, "--counters", &url]).await;
    let http = http_client();
    let view = r#"{"videoId":"cats","userId":"mia","timestamp":"2026-11-25T08:00:00Z"}"#;
    let request = http.post(format!("http://{}/v1/views", views.address)).header("content-type", "application/json");
    assert_eq!(request.body(view).send().await.expect("an answer").status(), 202);
    let has_counted = async || counting.get("views-default", "cats").await.is_ok_and(|count| count.count == 1);
    program::until("the view has counted", has_counted).await;
}

#[tokio::test]
async fn s6_redis_is_reached_by_tls_as_a_user_with_few_rights() {
    let place = Secured::new().await;
    let (redis, port) = redis(&place).await;
    let client = place.ca.client(place.dir.path(), "tallystone", "");
    let url = format!("rediss://127.0.0.1:{port}");
    let text = |path: &PathBuf| serde_json::to_string(path).expect("text");
    let config = place.path("t.toml");
    let password = place.token_file("password", PASSWORD);
    let section =
        |rest: &str| format!("[redis]\nurl = '{url}'\nuser = 'tallystone'\npassword_file = '{password}'\n{rest}");
    let files = format!(
        "ca_file = {}\ncert_file = {}\nkey_file = {}\n",
        text(&place.ca.file),
        text(&client.certificate),
        text(&client.key)
    );
    let archive = place.path("archive");
    let archived = format!("[archive]\nurl = 'file://{archive}'\ninterval_ms = 100\nkeep_ms = 0\n");
    std::fs::write(&config, section(&files) + &archived).expect("a file");
    let history = place.path("history.db");
    let server = place.start_with("server", &["--config", &config, "--history-file", &history]).await;
    let queue = server.address.to_string();
    let counters = place.start_with("counters", &["--config", &config, "--server", &queue]).await;
    let _worker = place.start_with("rollup-worker", &["--config", &config, "--server", &queue]).await;

    // The calls of the queue, once each.
    let client = Client::connect(format!("http://{queue}")).await.expect("the server");
    client.create_queue("q", QueueConfig::exclusive("k")).await.expect("a queue");
    let messages = ["a", "b"].map(|id| NewMessage::new(id, "p").metadata("k", id)).to_vec();
    client.enqueue("q", messages).await.expect("an Enqueue");
    let filter = tallystone_client::Filter::equals("k", "a");
    let lease = client.dequeue(Dequeue::new("q").filter(filter).wait_ms(10_000)).await.expect("a lease").remove(0);
    client.complete("q", vec![Completion::of(lease.lease_ref())]).await.expect("a Complete")[0].as_ref().expect("done");
    client.explain("q", "b").await.expect("an explanation");
    client.list_messages("q", State::Pending, 10, "").await.expect("messages");
    give_up_and_redrive(&client, "q").await;
    work_on_shards(&client).await;
    let address = format!("http://{queue}");
    for verb in [&["check"][..], &["queue", "ls"], &["history", "check"], &["queue", "pause", "q"]] {
        let ran = program::run(program::command(&[verb, &["--server", &address]].concat()), "").await;
        assert_eq!(ran.code, Some(0), "{verb:?}: {ran:?}");
    }
    client.update_queue("q", QueueConfig { max_depth: Some(9), ..QueueConfig::default() }).await.expect("an update");
    client.purge_queue("q", true).await.expect("a purge");
    client.delete_queue("q", true).await.expect("a deletion");

    // Those of the counters, until a rollup worker has done its part.
    let counting = CounterClient::connect(format!("http://{}", counters.address)).await.expect("the counters");
    let thresholds = Some(vec![Threshold { prefix: String::new(), count: 2 }]);
    let crossing = NamespaceConfig { coalesce_ms: Some(100), thresholds, ..NamespaceConfig::default() };
    counting.put_namespace("n", crossing).await.expect("one");
    counting.add("n", NewAdd::new("c", 2)).await.expect("an add");
    let give_up_at = tokio::time::Instant::now() + program::SOON;
    while counting.get("n", "c").await.expect("a count").count != 2 {
        assert!(tokio::time::Instant::now() < give_up_at, "no rollup");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let crossed = counting.crossings("n", "", 10, Duration::from_secs(10)).await.expect("crossings");
    assert_eq!(crossed.crossings.iter().map(|crossing| crossing.count).collect::<Vec<_>>(), [2]);
    let after = counting.crossings("n", &crossed.position, 10, Duration::ZERO).await.expect("crossings");
    assert_eq!(after.crossings, []);
    // Its event is in the archive soon, and no longer in Redis.
    let mut watching = connection(&redis).await;
    let names = ["tc:{n/*}:events:*", "tc:{n/*}:names"];
    loop {
        let mut left = 0;
        for pattern in names {
            let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut watching).await.expect("keys");
            left += keys.len();
        }
        if left == 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < give_up_at, "not archived");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let audit = counting.audit("n", "c").await.expect("an audit");
    assert!(audit.agrees, "{audit:?}");
    let recount = counting.recount("n", "c", NewRecount::of_count(3, "by hand")).await.expect("a recount");
    assert_eq!(recount.new_count, 5);
    counting.recounts("n", "c").await.expect("recounts");
    counting.clear("n", tallystone_client::NewClear::new("c")).await.expect("a clear");
    let deleted = ["counter", "--counters", &counters.address.to_string(), "namespace", "delete", "n", "--yes"];
    assert_eq!(program::run(program::command(&deleted), "").await.code, Some(0));

    count_a_view(&place, &config, &counters, &counting).await;

    // Redis has a log of what it has denied.
    let denied: redis::Value =
        redis::cmd("ACL").arg("LOG").query_async(&mut connection(&redis).await).await.expect("a log");
    assert_eq!(denied, redis::Value::Array(Vec::new()));

    // Another password is read for the next connection.
    place.token_file("password", "another-PW");
    let mut rotate = redis::cmd("ACL");
    rotate.arg("SETUSER").arg("tallystone").arg(&["resetpass", ">another-PW"]);
    rotate.query_async::<()>(&mut watching).await.expect("a new password");
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("USER").arg("tallystone");
    assert!(kill.query_async::<u64>(&mut watching).await.expect("a number") > 0, "the processes were connected");
    client.enqueue("rotated", vec![NewMessage::new("c", "p")]).await.expect("an Enqueue")[0]
        .as_ref()
        .expect("a message");

    // What is wrong is an error that names it.
    let refused = async |text: String, words: &str| {
        std::fs::write(&config, text).expect("a file");
        let ended =
            program::run(program::command(&["server", "--listen", "127.0.0.1:0", "--config", &config]), "").await;
        assert!([Some(2), Some(3)].contains(&ended.code), "{ended:?}");
        assert!(ended.stderr.contains(words) && !ended.stderr.contains(PASSWORD), "{ended:?}");
    };
    refused(section(""), "UnknownIssuer").await;
    refused(section(&files).replace("password'", "none'"), "redis.password_file").await;
    std::fs::write(&password, "wrong").expect("a file");
    refused(section(&files), "denies access").await;
}
