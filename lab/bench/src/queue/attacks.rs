//! The attacks: what callers may send that costs the server more than them. Each continues until it is dropped.

use super::stream_attacks::{connect, hold, silent, unfinished, unread};
use crate::load::{Traffic, pair, priority};
use crate::ours::channel_to;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::{CompleteRequest, DequeueRequest, EnqueueRequest, Filter, LeaseRef, NewMessage};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::transport::Channel;

/// The queue with many messages whose keys are not indexed.
pub(super) const POOL: &str = "pool";
const KEYS: [&str; 3] = ["a", "b", "c"];
const VALUES: u64 = 1_000;

const STREAMS: usize = 1_000;
/// Below the share of an address.
const WORK_STREAMS: usize = 4_900;
/// Below the bound of connections per address, which the innocent callers share.
const SILENT: usize = 900;
/// The limit of open files. The server uses four fifths of it for connections, and half of these for one address.
const FILES_MAX: u32 = 400;
/// What a client of HTTP/2 sends first, with an empty SETTINGS frame.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const WAITERS: usize = 2_000;
const WAITER_CONNECTIONS: usize = 8;
const WAIT_MS: i64 = 60_000;
/// After a refusal, in ms: callers that are not in step.
const PAUSE_MS: std::ops::Range<u64> = 500..1_500;
const ABSENT: u32 = 15_000;
const NEW_QUEUES: u32 = 3_000;

/// One attack.
#[derive(Clone, Copy)]
pub(super) enum Attack {
    /// Requests of which five bytes arrive.
    Unfinished,
    /// Connections that say nothing.
    Silent,
    /// More silent connections than the process may open files.
    Files,
    /// Connections that begin HTTP/2 and then say nothing, not even to pings.
    HalfOpen,
    /// Connections that leave the server no room for answers, and send requests that it therefore does not read.
    Unread,
    /// Work streams that request nothing.
    Streams,
    /// Filters by keys without an index, each needs one.
    Filters,
    /// Long polls with distinct filters, on the innocent queue.
    Waiters,
    /// Completes on queues that do not exist.
    Absent,
    /// Enqueues that create a queue each.
    NewQueues,
}

impl Attack {
    pub(super) const ALL: [Attack; 10] = [
        Attack::Unfinished,
        Attack::Silent,
        Attack::Files,
        Attack::HalfOpen,
        Attack::Unread,
        Attack::Streams,
        Attack::Filters,
        Attack::Waiters,
        Attack::Absent,
        Attack::NewQueues,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Attack::Unfinished => "1,000 requests that stop after five bytes",
            Attack::Silent => "900 silent connections",
            Attack::Files => "900 silent connections to a process with 400 files",
            Attack::HalfOpen => "900 half-open connections over HTTP/2",
            Attack::Unread => "900 connections with 64 KiB each that no call reads",
            Attack::Streams => "4,900 Work streams that request nothing",
            Attack::Filters => "8 dequeues by undeclared keys of a large queue",
            Attack::Waiters => "2,000 long polls on it with distinct filters",
            Attack::Absent => "15,000 Completes on absent queues",
            Attack::NewQueues => "3,000 Enqueues that create a queue each",
        }
    }

    pub(super) fn needs_pool(self) -> bool {
        matches!(self, Attack::Filters)
    }

    /// How many files the server may open, if the attack is about them.
    pub(super) fn files_max(self) -> Option<u32> {
        matches!(self, Attack::Files).then_some(FILES_MAX)
    }

    /// Starts it. What has a number is spread over this time.
    pub(super) async fn start(self, url: &str, lasts: Duration) -> Result<JoinSet<()>> {
        let mut tasks = JoinSet::new();
        match self {
            Attack::Unfinished => {
                let calls = connect(url).await?;
                (0..STREAMS).for_each(|_| drop(tasks.spawn(unfinished(calls.clone(), url.to_owned()))));
            }
            Attack::Silent | Attack::Files | Attack::HalfOpen => {
                let address = url.trim_start_matches("http://").to_owned();
                let first = if matches!(self, Attack::HalfOpen) { HTTP_2 } else { b"" };
                for _ in 0..SILENT {
                    let mut connection = TcpStream::connect(&address).await?;
                    connection.write_all(first).await?;
                    tasks.spawn(hold(connection));
                }
            }
            Attack::Unread => {
                for _ in 0..SILENT {
                    tasks.spawn(unread(url).await?);
                }
            }
            Attack::Streams => drop(tasks.spawn(silent(url, POOL, WORK_STREAMS).await?)),
            Attack::Filters => {
                let calls = QueueClient::new(channel_to(url).await?);
                for keys in 1..8_usize {
                    tasks.spawn(poll(calls.clone(), POOL, by_keys(keys)));
                }
                tasks.spawn(poll(calls, POOL, by_keys(7)));
            }
            Attack::Waiters => {
                let channels = channels(url).await?;
                for n in 0..WAITERS {
                    let calls = QueueClient::new(channels[n % channels.len()].clone());
                    tasks.spawn(poll(calls, super::innocent::INNOCENT, pair("k", n as u64)));
                }
            }
            Attack::Absent => {
                let channels = channels(url).await?;
                tasks.spawn(paced(ABSENT, lasts, move |n| complete(channels[n % channels.len()].clone(), n)));
            }
            Attack::NewQueues => {
                let channels = channels(url).await?;
                tasks.spawn(paced(NEW_QUEUES, lasts, move |n| create(channels[n % channels.len()].clone(), n)));
            }
        }
        Ok(tasks)
    }
}

/// The messages of [`POOL`].
pub(super) fn pool_traffic() -> Traffic {
    Traffic::new(|number, rng| {
        let metadata = KEYS.iter().flat_map(|key| pair(key, number % VALUES)).collect();
        (priority(rng), metadata)
    })
}

/// Some of the keys, by the bits of a number.
fn by_keys(bits: usize) -> BTreeMap<String, String> {
    let chosen = KEYS.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
    chosen.flat_map(|(_, key)| pair(key, 0)).collect()
}

async fn channels(url: &str) -> Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..WAITER_CONNECTIONS {
        channels.push(channel_to(url).await?);
    }
    Ok(channels)
}

/// Dequeues with a wait, again and again.
async fn poll(mut calls: QueueClient<Channel>, queue: &'static str, equals: BTreeMap<String, String>) {
    loop {
        let filters = vec![Filter { equals: equals.clone() }];
        let (queue, worker) = (queue.to_owned(), "attacker".to_owned());
        let request = DequeueRequest { queue, worker, limit: 1, wait_ms: WAIT_MS, filters, ..Default::default() };
        if calls.dequeue(request).await.is_err() {
            tokio::time::sleep(Duration::from_millis(rand::random_range(PAUSE_MS))).await;
        }
    }
}

async fn complete(channel: Channel, n: usize) {
    let lease = LeaseRef { id: "a".to_owned(), fencing_token: 1, ..Default::default() };
    let request = CompleteRequest { queue: format!("absent-{n}"), leases: vec![lease] };
    let _ = QueueClient::new(channel).complete(request).await;
}

async fn create(channel: Channel, n: usize) {
    let message = NewMessage { id: "a".to_owned(), ..Default::default() };
    let request = EnqueueRequest { queue: format!("new-{n}"), messages: vec![message] };
    let _ = QueueClient::new(channel).enqueue(request).await;
}

/// This number of calls at an even pace, whatever the server answers.
pub(super) async fn paced<F: Future<Output = ()> + Send + 'static>(
    count: u32,
    lasts: Duration,
    call: impl Fn(usize) -> F + Send + 'static,
) {
    let (begun, mut calls) = (Instant::now(), JoinSet::new());
    for n in 0..count {
        tokio::time::sleep_until((begun + lasts * n / count).into()).await;
        calls.spawn(call(n as usize));
        while calls.try_join_next().is_some() {}
    }
    while calls.join_next().await.is_some() {}
}
