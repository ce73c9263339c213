//! A client with two servers, one of which hangs (O8): hedged calls are answered by the other one, and each add counts
//! once, although the server that hung gets its copies of them later.

use super::now_ms;
use crate::crash::machines::{Redis, Server};
use crate::system::program::SOON;
use futures::future::{join_all, try_join_all};
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, Hedge, IdempotencyToken, NamespaceConfig, NewAdd};

const NS: &str = "hedged";
const CALLERS: usize = 20;
const ADDS: usize = 50;

/// Adds that would fail without hedges: an attempt has longer than the test may take, and there is no second one.
async fn adds(client: &CounterClient, round: usize) {
    let caller = async |caller: usize| {
        for number in 0..ADDS {
            let token = IdempotencyToken::new(format!("{round} {caller} {number}"), now_ms());
            let add = NewAdd::new(format!("c{caller}"), 1).token(token);
            client.add(NS, add).await.expect("an answer");
            let read = client.get(NS, &format!("c{caller}")).await.expect("an answer");
            assert_eq!(read.count, (round * ADDS + number + 1) as i64);
        }
    };
    let all = join_all((0..CALLERS).map(caller));
    tokio::time::timeout(SOON, all).await.expect("calls are answered although a server hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o8_hedged_calls_are_answered_while_a_server_hangs() {
    let redis = Redis::start().await;
    let url = redis.url();
    let args = ["counters", "--redis-url", &url, "--log", "error"];
    let servers = [Server::start_as(&args).await, Server::start_as(&args).await];
    let signal = |server: usize, signal| servers[server].signal(signal);
    let client = CounterClient::builder(servers[0].url())
        .server(servers[1].url())
        .hedge(Hedge::after(Duration::from_millis(50)))
        .call_timeout(SOON * 2)
        .retry_for(Duration::ZERO)
        .connect()
        .await
        .expect("two servers");
    let config = NamespaceConfig {
        counter_type: Some(CounterType::Accurate),
        accept_limit_ms: Some(300_000),
        ..NamespaceConfig::default()
    };
    client.put_namespace(NS, config).await.expect("a new namespace");

    adds(&client, 0).await;
    for still in [0, 1] {
        signal(still, Signal::SIGSTOP);
        adds(&client, 1 + still).await;
        signal(still, Signal::SIGCONT);
    }
    for server in &servers {
        let one = CounterClient::connect(server.url()).await.expect("it runs again");
        let reads = (0..CALLERS).map(async |caller| one.get(NS, &format!("c{caller}")).await.map(|read| read.count));
        let counts = try_join_all(reads).await.expect("counts");
        assert_eq!(counts, [(3 * ADDS) as i64; CALLERS]);
    }
}
