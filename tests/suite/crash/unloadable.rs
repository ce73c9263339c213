//! A Redis whose ACL makes it drop transactions at its start: the data is gone, and what says so went with it (X7, S6).

use super::machines::{Redis, Server};
use crate::system::program::SOON;
use redis::aio::MultiplexedConnection;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{Client, CounterClient, Error, NamespaceConfig, NewAdd, NewMessage, QueueConfig, QueueType};
use tallystone_tests::{lasting_port, patient_connection};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(10);
const QUEUE: &str = "q";
/// The user of the servers may not read the ACL, so their check of it is a warning.
const SERVERS: &str = "user blind on >pw ~* &* +@all -acl\n";
/// What the harness needs of the default user.
const DROPS: &str = "user default on nopass ~* &* -@all +ping +info +client\n";

fn write_acl(file: &Path, default: &str) {
    std::fs::write(file, format!("{default}{SERVERS}")).expect("a file");
}

fn reason<T>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Refused(refused)) => refused.reason,
        _ => String::new(),
    }
}

/// Two keys that are written as one transaction, and no process but this one knows.
const TRANSACTION: [&str; 2] = ["test:{t}:a", "test:{t}:b"];

async fn connection(redis: &Redis) -> MultiplexedConnection {
    let url = redis.url().replace("redis://", "redis://blind:pw@");
    let client = redis::Client::open(url).expect("an address");
    patient_connection(&client).await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_redis_that_drops_its_transactions_is_noticed() {
    let dir = TempDir::new().expect("a temporary folder");
    let acl = dir.path().join("users.acl");
    write_acl(&acl, "user default on nopass ~* &* +@all\n");
    let args = vec!["--aclfile".to_owned(), acl.to_str().expect("text").to_owned()];
    let mut redis = Redis::start_on(lasting_port(), args).await;
    let url = redis.url().replace("redis://", "redis://blind:pw@");
    let server = Server::start_as(&["server", "--redis-url", &url, "--log", "error"]).await;
    let args = ["counters", "--redis-url", &url, "--server", &server.url(), "--log", "error"];
    let counting = Server::start_as(&args).await;
    let queues = Client::builder(server.url()).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let counts = CounterClient::builder(counting.url()).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    queues.create_queue(QUEUE, QueueConfig::exclusive("key")).await.expect("a new queue");
    let message = || NewMessage::new("m", "").metadata("key", "k");
    queues.enqueue(QUEUE, vec![message()]).await.expect("a message");
    counts.put_namespace("n", NamespaceConfig::default()).await.expect("a namespace");
    counts.add("n", NewAdd::new("c", 1)).await.expect("an add");
    let mut write = redis::pipe();
    for key in TRANSACTION {
        write.cmd("SET").arg(key).arg(1);
    }
    write.atomic().exec_async(&mut connection(&redis).await).await.expect("a transaction");

    redis.kill().await;
    write_acl(&acl, DROPS);
    redis.restart().await;
    // Later versions of Redis load the data with all rights. Then nothing is lost, and nothing must be refused.
    let mut after = connection(&redis).await;
    let kept: u64 = redis::cmd("EXISTS").arg(&TRANSACTION).query_async(&mut after).await.expect("a number");
    let wanted = if kept == 0 { "DATA_LOSS" } else { "" };
    println!("Redis {}", if wanted.is_empty() { "has kept its data" } else { "has dropped its data" });
    let give_up_at = Instant::now() + SOON;
    loop {
        let message = reason(queues.enqueue(QUEUE, vec![message()]).await);
        let add = reason(counts.add("n", NewAdd::new("c", 1)).await);
        if [&message, &add].iter().all(|reason| *reason == wanted) {
            break;
        }
        // Not as a new queue, which is simple: an exclusive one would have lost its exclusivity without a word.
        if let Ok(found) = queues.get_queue(QUEUE).await {
            let is_exclusive = matches!(found.config.queue_type, Some(QueueType::Exclusive { .. }));
            assert!(is_exclusive, "the queue was made again, as another one");
        }
        assert!(Instant::now() < give_up_at, "{message:?} and {add:?} instead of {wanted:?}");
        sleep(POLL).await;
    }
}
