//! Closed loops: clients that send the next call as soon as the last one is answered, and the messages that they send.

use crate::sample::{CallStats, TimedStats};
use crate::shape::{PAYLOAD_BYTES, time_limit};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A message to send.
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) payload: Bytes,
    pub(crate) priority: i64,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// One client of a queue, ours or a peer's. Each method is one call over the wire if the peer can do that.
pub(crate) trait LoadClient: Send + Sized + 'static {
    /// Identifies a leased message.
    type Held: Send;

    fn enqueue(&mut self, drafts: Vec<Draft>) -> impl Future<Output = Result<()>> + Send;

    /// Up to `limit` messages; empty when none can run now.
    fn dequeue(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Self::Held>>> + Send;

    fn complete(&mut self, held: Vec<Self::Held>) -> impl Future<Output = Result<()>> + Send;
}

/// Priority and metadata of the n-th message.
type Shape = dyn Fn(u64, &mut SmallRng) -> (i64, BTreeMap<String, String>) + Send + Sync;

/// The messages to send: random payloads, ids as a caller would make them, priority and metadata by the shape.
#[derive(Clone)]
pub(crate) struct Traffic(Arc<Shape>);

impl Traffic {
    pub(crate) fn new(
        shape: impl Fn(u64, &mut SmallRng) -> (i64, BTreeMap<String, String>) + Send + Sync + 'static,
    ) -> Traffic {
        Traffic(Arc::new(shape))
    }

    /// No metadata.
    pub(crate) fn plain() -> Traffic {
        Traffic::new(|_, rng| (priority(rng), BTreeMap::new()))
    }

    /// One pair: `name` has one of `values` values, at random.
    pub(crate) fn keyed(name: &'static str, values: u64) -> Traffic {
        Traffic::new(move |_, rng| (priority(rng), pair(name, rng.random_range(0..values))))
    }

    /// The messages of one client. The seed decides everything except the ids.
    pub(crate) fn source(&self, seed: u64) -> Source {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut payload = vec![0; PAYLOAD_BYTES];
        rng.fill_bytes(&mut payload);
        Source { traffic: self.clone(), rng, payload: payload.into() }
    }
}

/// A random deadline in Unix ms: exact in a double, which some peers need.
pub(crate) fn priority(rng: &mut SmallRng) -> i64 {
    rng.random_range(1_000_000_000_000..2_000_000_000_000)
}

/// The value numbered `value` of a metadata key.
pub(crate) fn pair(name: &str, value: u64) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), format!("{name}-{value}"))])
}

/// The traffic of one client.
pub(crate) struct Source {
    traffic: Traffic,
    rng: SmallRng,
    payload: Bytes,
}

impl Source {
    pub(crate) fn draft(&mut self, number: u64) -> Draft {
        let (priority, metadata) = (self.traffic.0)(number, &mut self.rng);
        Draft { id: uuid::Uuid::now_v7().to_string(), payload: self.payload.clone(), priority, metadata }
    }
}

/// Runs the loops of all clients at once, in bounded time. Returns the clients, in any order, and their common statistics.
pub(crate) async fn race<C, F, Fut>(clients: Vec<C>, messages: u64, each: F) -> Result<(Vec<C>, TimedStats)>
where
    C: Send + 'static,
    F: Fn(usize, C) -> Fut,
    Fut: Future<Output = Result<(C, CallStats)>> + Send + 'static,
{
    let began = Instant::now();
    let mut loops: JoinSet<_> = clients.into_iter().enumerate().map(|(n, client)| each(n, client)).collect();
    let limit = time_limit(messages);
    let all = async {
        let (mut clients, mut total) = (Vec::new(), CallStats::new());
        total.last = began;
        while let Some(ended) = loops.join_next().await {
            let (client, stats) = ended??;
            clients.push(client);
            total.add(&stats);
        }
        anyhow::Ok((clients, total))
    };
    let outcome = tokio::time::timeout(limit, all).await;
    let (clients, total) = outcome.with_context(|| format!("not done after {} s", limit.as_secs()))??;
    if total.messages != messages {
        bail!("{} messages expected, {} handled", messages, total.messages);
    }
    Ok((clients, TimedStats::since(began, total)))
}

/// Sends the messages with these numbers in batches; the latency is that of a call.
pub(crate) async fn enqueue_all<C: LoadClient>(
    clients: Vec<C>,
    numbers: Range<u64>,
    batch: usize,
    traffic: &Traffic,
) -> Result<(Vec<C>, TimedStats)> {
    let next = Arc::new(AtomicU64::new(numbers.start));
    // Each client of each part of a fill has its own seed.
    let sources = (numbers.start..).map(|seed| traffic.source(seed));
    let clients: Vec<(C, Source)> = clients.into_iter().zip(sources).collect();
    let (clients, total) = race(clients, numbers.end - numbers.start, |_, (mut client, mut source)| {
        let (next, numbers) = (next.clone(), numbers.clone());
        async move {
            let mut stats = CallStats::new();
            loop {
                let from = next.fetch_add(batch as u64, Ordering::Relaxed);
                if from >= numbers.end {
                    return Ok(((client, source), stats));
                }
                let drafts: Vec<Draft> =
                    (from..numbers.end.min(from + batch as u64)).map(|n| source.draft(n)).collect();
                let (sent, began) = (drafts.len(), Instant::now());
                client.enqueue(drafts).await?;
                stats.note(sent, began.elapsed());
            }
        }
    })
    .await?;
    Ok((clients.into_iter().map(|(client, _)| client).collect(), total))
}

/// Dequeues and completes `messages` messages that were enqueued before; the latency is that of a dequeue with its
/// complete.
pub(crate) async fn drain<C: LoadClient>(clients: Vec<C>, messages: u64, batch: usize) -> Result<(Vec<C>, TimedStats)> {
    let done = Arc::new(AtomicU64::new(0));
    race(clients, messages, |_, mut client| {
        let done = done.clone();
        async move {
            let mut stats = CallStats::new();
            while done.load(Ordering::Relaxed) < messages {
                let began = Instant::now();
                let held = client.dequeue(batch).await?;
                if held.is_empty() {
                    // Other clients hold the last messages, or (exclusive) their keys.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let count = held.len();
                client.complete(held).await?;
                stats.note(count, began.elapsed());
                done.fetch_add(count as u64, Ordering::Relaxed);
            }
            Ok((client, stats))
        }
    })
    .await
}

/// Dequeues `messages` messages and keeps their leases; the latency is that of a call.
pub(crate) async fn take<C: LoadClient>(
    clients: Vec<C>,
    messages: u64,
    batch: usize,
) -> Result<(Vec<(C, Vec<C::Held>)>, TimedStats)> {
    let requested = Arc::new(AtomicU64::new(0));
    let clients = clients.into_iter().map(|client| (client, Vec::new())).collect();
    race(clients, messages, |_, (mut client, mut hand): (C, Vec<C::Held>)| {
        let requested = requested.clone();
        async move {
            let mut stats = CallStats::new();
            loop {
                let from = requested.fetch_add(batch as u64, Ordering::Relaxed);
                if from >= messages {
                    return Ok(((client, hand), stats));
                }
                let mut left = batch.min((messages - from) as usize);
                while left > 0 {
                    let began = Instant::now();
                    let held = client.dequeue(left).await?;
                    if held.is_empty() {
                        bail!("nothing to dequeue, though messages are pending");
                    }
                    stats.note(held.len(), began.elapsed());
                    left -= held.len().min(left);
                    hand.extend(held);
                }
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A queue in a vector.
    #[derive(Clone, Default)]
    struct Heap(Arc<Mutex<Vec<String>>>);

    impl LoadClient for Heap {
        type Held = String;

        async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
            self.0.lock().unwrap().extend(drafts.into_iter().map(|draft| draft.id));
            Ok(())
        }

        async fn dequeue(&mut self, limit: usize) -> Result<Vec<String>> {
            let mut heap = self.0.lock().unwrap();
            let from = heap.len().saturating_sub(limit);
            Ok(heap.split_off(from))
        }

        async fn complete(&mut self, _: Vec<String>) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_same_messages_go_in_and_come_out() {
        let heap = Heap::default();
        let clients = vec![heap.clone(); 3];
        let (clients, total) = enqueue_all(clients, 0..1_001, 32, &Traffic::plain()).await.unwrap();
        assert_eq!(heap.0.lock().unwrap().len(), 1_001);
        assert!(total.rate().value > 0.0 && total.rate().p99_ms.is_some());
        let (hands, _) = take(clients, 100, 32).await.unwrap();
        assert_eq!(hands.iter().map(|(_, hand)| hand.len()).sum::<usize>(), 100);
        let clients = hands.into_iter().map(|(client, _)| client).collect();
        drain(clients, 901, 32).await.unwrap();
        assert!(heap.0.lock().unwrap().is_empty());
    }
}
