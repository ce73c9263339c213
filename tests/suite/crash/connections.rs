//! Counters have a connection for each shard. After a restart of Redis, one that is used says so to all, and the others work, too.

use super::machines::{Redis, Server};
use crate::counting::house::until;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_client::{CounterClient, IdempotencyToken, NamespaceConfig, NewAdd};

const NAMESPACE: &str = "connections";
/// Enough that every shard has some.
const ADDS: usize = 200;
const RESTARTS: usize = 3;

fn add(token: String) -> NewAdd {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    NewAdd::new("c", 1).token(IdempotencyToken::new(token, now_ms))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_connections_that_redis_has_closed_do_not_keep_adds_from_the_others() {
    let mut redis = Redis::start().await;
    let server = Server::start_as(&["counters", "--redis-url", &redis.url(), "--log", "error"]).await;
    let client = CounterClient::builder(server.url()).retry_for(Duration::ZERO).connect().await;
    let client = client.expect("a server that listens");
    client.put_namespace(NAMESPACE, NamespaceConfig::default()).await.expect("a namespace");
    for restart in 0..=RESTARTS {
        if restart > 0 {
            redis.kill().await;
            redis.restart().await;
        }
        // The first one that counts has opened the connection of its shard again.
        let one = async || client.add(NAMESPACE, add(format!("{restart}"))).await.is_ok();
        until(one, |is_counted| *is_counted).await;
        let adds = (0..ADDS).map(|number| add(format!("{restart}-{number}"))).collect();
        let results = client.add_many(NAMESPACE, adds).await.expect("results");
        let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert!(refused.is_empty(), "after {restart} restarts: {} refused, such as {:?}", refused.len(), refused[0]);
    }
}
