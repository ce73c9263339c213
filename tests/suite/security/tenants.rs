//! S5: the quotas of a tenant, through two servers on one Redis.

use super::secured::{Listening, Secured};
use crate::system::program::{metrics_page, until};
use std::fmt::Debug;
use std::time::Duration;
use tallystone_client::{Client, Code, Dequeue, Enqueued, Error, NewMessage, QueueConfig, Refused};

const TENANT: &str = "[[tenants]]\nname = 't'\nprefix = 't/'\n";

/// Two servers with a tenant of these quotas.
async fn start(quotas: &str) -> (Secured, [Listening; 2]) {
    let place = Secured::new().await;
    let config = place.path("tallystone.toml");
    std::fs::write(&config, format!("{TENANT}{quotas}")).expect("a file");
    let args = ["--config", config.as_str()];
    let servers = [place.start("server", &args).await, place.start("server", &args).await];
    (place, servers)
}

fn client(server: &Listening) -> Client {
    let builder = Client::builder(format!("http://{}", server.address)).retry_for(Duration::ZERO);
    builder.connect_lazy().expect("a good address")
}

fn messages(ids: std::ops::Range<u32>) -> Vec<NewMessage> {
    ids.map(|id| NewMessage::new(id.to_string(), vec![0; 1_000])).collect()
}

/// The quota that has refused a call, and its bound.
fn quota<T: Debug>(answer: Result<T, Error>) -> [String; 2] {
    match answer {
        Err(Error::Refused(refused)) => {
            assert_eq!(
                (refused.code, refused.reason.as_str()),
                (Code::ResourceExhausted, "TENANT_QUOTA"),
                "{refused:?}"
            );
            ["quota", "max"].map(|key| refused.metadata[key].clone())
        }
        other => panic!("no refusal: {other:?}"),
    }
}

/// Those that were accepted, and the refusals of the others, which a quota must have made.
fn split(results: Vec<Result<Enqueued, Refused>>) -> (usize, Vec<Refused>) {
    let (accepted, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let refused: Vec<Refused> = refused.into_iter().map(Result::unwrap_err).collect();
    for refused in &refused {
        assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "TENANT_QUOTA"), "{refused:?}");
        assert_eq!(refused.metadata["tenant"], "t");
    }
    (accepted.len(), refused)
}

#[tokio::test]
async fn s5_a_tenant_is_as_full_at_one_server_as_at_the_other() {
    let (_place, servers) = start("messages_max = 50").await;
    let [a, b] = servers.each_ref().map(client);
    let (accepted, refused) = split(a.enqueue("t/a", messages(0..80)).await.expect("results"));
    assert_eq!((accepted, refused.len()), (50, 30));
    assert_eq!((refused[0].metadata["quota"].as_str(), refused[0].metadata["max"].as_str()), ("messages_max", "50"));
    assert_eq!(refused[0].retry_after, Some(Duration::from_secs(1)));
    let (accepted, refused) = split(b.enqueue("t/b", messages(0..10)).await.expect("results"));
    assert_eq!((accepted, refused.len()), (0, 10));
    assert!(a.enqueue("other", messages(0..100)).await.expect("results").iter().all(Result::is_ok));
    // Completed messages count until they are collected; a purge makes room at both.
    a.purge_queue("t/a", true).await.expect("a purge");
    tokio::time::timeout(Duration::from_secs(30), async {
        while split(b.enqueue("t/b", messages(0..50)).await.expect("results")).0 < 50 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("room");
    let page = metrics_page(&servers[0].metrics.to_string()).await;
    assert!(page.contains("tallystone_tenant_refused_total{tenant=\"t\",quota=\"messages_max\"} 30"), "{page}");
}

#[tokio::test]
async fn s5_bytes_are_what_redis_needs_for_the_messages() {
    let (_place, servers) = start("bytes_max = 1_000_000").await;
    let [a, b] = servers.each_ref().map(client);
    let mut accepted = 0;
    for n in 0..20 {
        let messages = messages(100 * n..100 * (n + 1));
        accepted += split(a.enqueue(&format!("t/{}", n % 3), messages).await.expect("results")).0;
    }
    assert!((700..1_000).contains(&accepted), "{accepted} messages of 1,000 bytes and what Redis adds");
    let results = b.enqueue("t/0", messages(5_000..5_500)).await.expect("results");
    assert!(split(results).0 < 300, "the other server has read what is there");
}

#[tokio::test]
async fn s5_calls_waits_and_leases_of_a_tenant_are_bounded() {
    let (_place, servers) = start("calls_per_s = 20\nlease_ms_max = 60_000\nwaiters_max = 1").await;
    let client = client(&servers[0]);
    client.create_queue("t/a", QueueConfig::default()).await.expect("a queue");
    let long = client.dequeue(Dequeue::new("t/a").lease_ms(60_001)).await;
    assert_eq!(quota(long), ["lease_ms_max", "60000"]);
    let wait = |client: Client| async move { client.dequeue(Dequeue::new("t/a").wait_ms(60_000)).await };
    let waiting = tokio::spawn(wait(client.clone()));
    let metrics = servers[0].metrics.to_string();
    until("a Dequeue waits", async || metrics_page(&metrics).await.contains("\ntallystone_waiting_dequeues 1\n")).await;
    assert_eq!(quota(wait(client.clone()).await), ["waiters_max", "1"]);
    waiting.abort();
    let mut refusals = 0;
    for _ in 0..60 {
        match client.depth("t/a", None).await {
            Ok(_) => {}
            Err(Error::Refused(refused)) => {
                assert_eq!(refused.metadata["quota"], "calls_per_s");
                assert!(refused.retry_after.is_some_and(|wait| wait <= Duration::from_millis(50)), "{refused:?}");
                refusals += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refusals > 0, "60 calls take less than two seconds");
    // A client that may repeat the call gets its answer.
    let patient = Client::builder(format!("http://{}", servers[0].address)).connect_lazy().expect("a good address");
    patient.depth("t/a", None).await.expect("an answer");
}

#[tokio::test]
async fn s5_queues_and_the_rate_of_new_messages_of_a_tenant_are_bounded() {
    let (_place, servers) = start("queues_max = 2\nenqueue_per_s = 5").await;
    let [a, b] = servers.each_ref().map(client);
    a.create_queue("t/a", QueueConfig::default()).await.expect("a queue");
    b.create_queue("t/b", QueueConfig::default()).await.expect("a queue");
    for client in [&a, &b] {
        assert_eq!(quota(client.create_queue("t/c", QueueConfig::default()).await), ["queues_max", "2"]);
    }
    a.create_queue("other", QueueConfig::default()).await.expect("a queue of no tenant");
    // Those of one second at once.
    let (accepted, refused) = split(a.enqueue("t/a", messages(0..50)).await.expect("results"));
    assert!((5..50).contains(&accepted), "{accepted}");
    assert_eq!((refused[0].metadata["quota"].as_str(), refused[0].metadata["max"].as_str()), ("enqueue_per_s", "5"));
    assert!(a.enqueue("other", messages(0..50)).await.expect("results").iter().all(Result::is_ok));
}
