//! A server whose own clock is wrong is refused, and holds up no other one (X6).

use super::{POLL, RECOVERY, WRONG};
use crate::crash::machines::{Redis, Server};
use crate::system::program::SOON;
use std::time::Duration;
use tallystone_client::{
    Client, CounterClient, Dequeue, Error, NamespaceConfig, NewAdd, NewMessage, QueueConfig, Result,
};
use tallystone_tests::ClockShift;
use tokio::time::{Instant, sleep};

const QUEUE: &str = "q";
const NS: &str = "ns";

/// A server of queues and one of counters.
struct Pair {
    queues: Client,
    counters: CounterClient,
    _servers: [Server; 2],
}

impl Pair {
    async fn start(redis_url: &str, shift: Option<&ClockShift>) -> Pair {
        let environment = || shift.map(ClockShift::environment).unwrap_or_default();
        let start =
            async |verb| Server::start_in(&[verb, "--redis-url", redis_url, "--log", "error"], environment()).await;
        let servers = [start("server").await, start("counters").await];
        let retry_for = Duration::ZERO;
        let queues = Client::builder(servers[0].url()).retry_for(retry_for).connect_lazy().expect("an address");
        let counters = CounterClient::builder(servers[1].url()).retry_for(retry_for).connect_lazy();
        Pair { queues, counters: counters.expect("an address"), _servers: servers }
    }

    /// An Enqueue, a Dequeue and an add.
    async fn call(&self, id: &str) -> [Result<()>; 3] {
        let message = NewMessage::new(id, Vec::new());
        [
            self.queues.enqueue(QUEUE, vec![message]).await.map(drop),
            self.queues.dequeue(Dequeue::new(QUEUE)).await.map(drop),
            self.counters.add(NS, NewAdd::new("c", 1)).await.map(drop),
        ]
    }

    /// Calls until all three calls have such an answer, for at most so long.
    async fn until(&self, id: &str, limit: Duration, is_expected: impl Fn(&Result<()>) -> bool) {
        let give_up_at = Instant::now() + limit;
        loop {
            let answers = self.call(id).await;
            if answers.iter().all(&is_expected) {
                return;
            }
            assert!(Instant::now() < give_up_at, "{answers:?}");
            sleep(POLL).await;
        }
    }
}

/// Refused because of the clock, and nothing has changed.
fn is_skewed(answer: &Result<()>) -> bool {
    matches!(answer, Err(Error::Unavailable { message, .. }) if message.contains("clock"))
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_a_server_with_a_wrong_clock_is_refused_and_the_others_serve() {
    let (redis, shift) = (Redis::start().await, ClockShift::new());
    let url = redis.url();
    let (right, wrong) = (Pair::start(&url, None).await, Pair::start(&url, Some(&shift)).await);
    right.queues.create_queue(QUEUE, QueueConfig::default()).await.expect("a queue");
    right.counters.put_namespace(NS, NamespaceConfig::default()).await.expect("a namespace");
    wrong.until("before", SOON, Result::is_ok).await;
    for ahead_ms in WRONG {
        shift.set_ms(ahead_ms);
        wrong.until(&format!("wrong{ahead_ms}"), SOON, is_skewed).await;
        for round in 0..50 {
            let refused = wrong.call(&format!("refused{ahead_ms}/{round}")).await;
            assert!(refused.iter().all(is_skewed), "{refused:?}");
            let served = right.call(&format!("served{ahead_ms}/{round}")).await;
            assert!(served.iter().all(Result::is_ok), "{served:?}");
        }
        let refused = right.queues.get_message(QUEUE, &format!("refused{ahead_ms}/0")).await;
        assert!(refused.is_err(), "a refused call has enqueued: {refused:?}");
        shift.set_ms(0);
        wrong.until(&format!("after{ahead_ms}"), RECOVERY, Result::is_ok).await;
    }
}
