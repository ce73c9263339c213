//! Closed loops: clients that call as fast as they are answered, and what they send.

use crate::sample::{Tally, Total};
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

/// A message to be sent.
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) payload: Bytes,
    pub(crate) priority: i64,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Whatever keeps a queue, seen by one client. Every method is one call over the wire where the peer can do that.
pub(crate) trait Client: Send + Sized + 'static {
    /// What names a message in hand.
    type Held: Send;

    fn enqueue(&mut self, drafts: Vec<Draft>) -> impl Future<Output = Result<()>> + Send;

    /// Up to `limit`; empty when nothing is there to run now.
    fn dequeue(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Self::Held>>> + Send;

    fn complete(&mut self, held: Vec<Self::Held>) -> impl Future<Output = Result<()>> + Send;
}

/// Priority and metadata of the n-th message.
type Shape = dyn Fn(u64, &mut SmallRng) -> (i64, BTreeMap<String, String>) + Send + Sync;

/// What is sent: random payloads and ids as a caller would make them, priority and metadata by the shape.
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

    /// One pair: `name` is one of so many values, at random.
    pub(crate) fn keyed(name: &'static str, values: u64) -> Traffic {
        Traffic::new(move |_, rng| (priority(rng), pair(name, rng.random_range(0..values))))
    }

    /// What one client sends; the seed decides, ids apart.
    pub(crate) fn source(&self, seed: u64) -> Source {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut payload = vec![0; PAYLOAD_BYTES];
        rng.fill_bytes(&mut payload);
        Source { traffic: self.clone(), rng, payload: payload.into() }
    }
}

/// A random deadline, in Unix ms as the norm is: exact in a double, which some peers need.
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

/// Runs all loops at once, in bounded time; gives the clients back, in any order, with what they came to.
pub(crate) async fn race<C, F, Fut>(clients: Vec<C>, messages: u64, each: F) -> Result<(Vec<C>, Total)>
where
    C: Send + 'static,
    F: Fn(usize, C) -> Fut,
    Fut: Future<Output = Result<(C, Tally)>> + Send + 'static,
{
    let began = Instant::now();
    let mut loops: JoinSet<_> = clients.into_iter().enumerate().map(|(n, client)| each(n, client)).collect();
    let limit = time_limit(messages);
    let all = async {
        let (mut clients, mut total) = (Vec::new(), Tally::new());
        total.last = began;
        while let Some(ended) = loops.join_next().await {
            let (client, tally) = ended??;
            clients.push(client);
            total.add(&tally);
        }
        anyhow::Ok((clients, total))
    };
    let outcome = tokio::time::timeout(limit, all).await;
    let (clients, total) = outcome.with_context(|| format!("not done after {} s", limit.as_secs()))??;
    if total.messages != messages {
        bail!("{} messages were to be handled, {} were", messages, total.messages);
    }
    Ok((clients, Total::since(began, total)))
}

/// Sends the messages of these numbers in batches; the latency is that of a call.
pub(crate) async fn enqueue_all<C: Client>(
    clients: Vec<C>,
    numbers: Range<u64>,
    batch: usize,
    traffic: &Traffic,
) -> Result<(Vec<C>, Total)> {
    let next = Arc::new(AtomicU64::new(numbers.start));
    // Each client of each part of a fill draws its own.
    let sources = (numbers.start..).map(|seed| traffic.source(seed));
    let clients: Vec<(C, Source)> = clients.into_iter().zip(sources).collect();
    let (clients, total) = race(clients, numbers.end - numbers.start, |_, (mut client, mut source)| {
        let (next, numbers) = (next.clone(), numbers.clone());
        async move {
            let mut tally = Tally::new();
            loop {
                let from = next.fetch_add(batch as u64, Ordering::Relaxed);
                if from >= numbers.end {
                    return Ok(((client, source), tally));
                }
                let drafts: Vec<Draft> =
                    (from..numbers.end.min(from + batch as u64)).map(|n| source.draft(n)).collect();
                let (sent, began) = (drafts.len(), Instant::now());
                client.enqueue(drafts).await?;
                tally.note(sent, began.elapsed());
            }
        }
    })
    .await?;
    Ok((clients.into_iter().map(|(client, _)| client).collect(), total))
}

/// Dequeues and completes so many messages, all enqueued before; the latency is that of a dequeue with its complete.
pub(crate) async fn drain<C: Client>(clients: Vec<C>, messages: u64, batch: usize) -> Result<(Vec<C>, Total)> {
    let done = Arc::new(AtomicU64::new(0));
    race(clients, messages, |_, mut client| {
        let done = done.clone();
        async move {
            let mut tally = Tally::new();
            while done.load(Ordering::Relaxed) < messages {
                let began = Instant::now();
                let held = client.dequeue(batch).await?;
                if held.is_empty() {
                    // The last messages are in other hands, or (exclusive) behind those.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let count = held.len();
                client.complete(held).await?;
                tally.note(count, began.elapsed());
                done.fetch_add(count as u64, Ordering::Relaxed);
            }
            Ok((client, tally))
        }
    })
    .await
}

/// Dequeues so many messages and keeps them in hand; the latency is that of a call.
pub(crate) async fn take<C: Client>(
    clients: Vec<C>,
    messages: u64,
    batch: usize,
) -> Result<(Vec<(C, Vec<C::Held>)>, Total)> {
    let asked = Arc::new(AtomicU64::new(0));
    let clients = clients.into_iter().map(|client| (client, Vec::new())).collect();
    race(clients, messages, |_, (mut client, mut hand): (C, Vec<C::Held>)| {
        let asked = asked.clone();
        async move {
            let mut tally = Tally::new();
            loop {
                let from = asked.fetch_add(batch as u64, Ordering::Relaxed);
                if from >= messages {
                    return Ok(((client, hand), tally));
                }
                let mut left = batch.min((messages - from) as usize);
                while left > 0 {
                    let began = Instant::now();
                    let held = client.dequeue(left).await?;
                    if held.is_empty() {
                        bail!("nothing to dequeue, though messages are pending");
                    }
                    tally.note(held.len(), began.elapsed());
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

    impl Client for Heap {
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
    async fn exactly_so_many_go_in_and_come_out() {
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
