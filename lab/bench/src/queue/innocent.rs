//! An innocent queue: messages at a steady rate, which are measured while others disturb the server.
//!
//! The schedule is open: a message counts from its scheduled time until it is completed.

use crate::load::{LoadClient, Traffic};
use crate::ours::clients_of;
use crate::sample::CallStats;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The name of the queue.
pub(super) const INNOCENT: &str = "innocent";
/// Messages per second.
pub(super) const PER_S: u32 = 100;
const CONNECTIONS: usize = 4;

/// When the messages are sent.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pub(super) begins: Instant,
    pub(super) lasts: Duration,
}

impl Schedule {
    /// Sends the messages through the server at this URL.
    pub(super) async fn run(self, url: &str) -> Result<CallStats> {
        let clients = clients_of(url, INNOCENT, CONNECTIONS, CONNECTIONS).await?;
        let mut source = Traffic::plain().source(u64::MAX);
        let calls = self.calls(|number| {
            let (mut client, draft) = (clients[number as usize % clients.len()].clone(), source.draft(number));
            async move {
                client.enqueue(vec![draft]).await?;
                let held = client.dequeue(1).await?;
                ensure!(held.len() == 1, "a message of the innocent queue was not there");
                client.complete(held).await
            }
        });
        calls.await
    }

    /// Makes the call with each number at its time, whatever the earlier ones do.
    pub(super) async fn calls<F: Future<Output = Result<()>> + Send + 'static>(
        self,
        mut call: impl FnMut(u64) -> F,
    ) -> Result<CallStats> {
        let (mut under_way, mut due, mut number) = (JoinSet::new(), self.begins, 0);
        while due < self.begins + self.lasts {
            tokio::time::sleep_until(due.into()).await;
            let call = call(number);
            under_way.spawn(async move {
                call.await?;
                anyhow::Ok(due.elapsed())
            });
            number += 1;
            due += Duration::from_secs(1) / PER_S;
        }
        let mut stats = CallStats::new();
        while let Some(call) = under_way.join_next().await {
            stats.note(1, call??);
        }
        Ok(stats)
    }
}
