//! Our side of a figure: a server in this process on the Redis of the rig, and clients that call it by gRPC over loopback.
//!
//! The clients are the generated ones, so that a figure measures the service and not the conveniences of a client.

use crate::load::{Draft, LoadClient};
use crate::own_threads::{OwnThreads, serve};
use crate::rig::Rig;
use crate::shape::RETENTION_MS;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::time::{Duration, Instant};
use tallystone_assembly::Config;
use tallystone_client::connect;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::{
    CompleteRequest, CreateQueueRequest, DepthRequest, DequeueRequest, EnqueueRequest, LeaseRef, NewMessage,
    QueueConfig, QueueType, TransitionResult, enqueue_result, transition_result,
};
use tallystone_serving::Running;
use tonic::transport::{Channel, Endpoint};

/// How often to check whether completed messages are collected, and for how long.
const COLLECT_POLL: Duration = Duration::from_millis(100);
const COLLECT_LIMIT: Duration = Duration::from_secs(300);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running server.
pub(crate) struct Ours(OwnThreads<Running>);

impl Ours {
    /// Starts one on the rig's Redis.
    pub(crate) async fn start(rig: &Rig, threads: usize) -> Result<Ours> {
        Ours::start_with(config_of(rig), threads).await
    }

    /// Starts one with this configuration and its history, on this many dedicated threads; 0: on those of the bench.
    pub(crate) async fn start_with(config: Config, threads: usize) -> Result<Ours> {
        let start = async move { serve(tallystone_assembly::queue(&config).await?).await };
        Ok(Ours(OwnThreads::start("server", threads, start).await?))
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.0.stop(async |server| server.stop().await.context("the server failed")).await
    }

    pub(crate) fn url(&self) -> String {
        self.0.part.url()
    }

    /// A new connection.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        channel_to(&self.url()).await
    }

    /// `count` clients of one queue, spread over `connections` connections.
    pub(crate) async fn clients(&self, queue: &str, count: usize, connections: usize) -> Result<Vec<OurClient>> {
        clients_of(&self.url(), queue, count, connections).await
    }

    /// Waits until no completed message of the queue is left.
    pub(crate) async fn collected(&self, queue: &str) -> Result<()> {
        let mut admin = QueueAdminClient::new(self.channel().await?);
        let give_up_at = Instant::now() + COLLECT_LIMIT;
        while Instant::now() < give_up_at {
            let request = DepthRequest { queue: queue.to_owned(), filter: None };
            if admin.depth(request).await?.into_inner().counts.unwrap_or_default().completed == 0 {
                return Ok(());
            }
            tokio::time::sleep(COLLECT_POLL).await;
        }
        bail!("completed messages of {queue} are still there after {} s", COLLECT_LIMIT.as_secs());
    }

    pub(crate) async fn create_queue(&self, name: &str, config: QueueConfig) -> Result<()> {
        let request = CreateQueueRequest { name: name.to_owned(), config: Some(config) };
        QueueAdminClient::new(self.channel().await?).create_queue(request).await?;
        Ok(())
    }
}

/// A new connection to the server at this URL.
pub(crate) async fn channel_to(url: &str) -> Result<Channel> {
    Ok(connect(Endpoint::from_shared(url.to_owned())?, CONNECT_TIMEOUT).await?)
}

/// `count` clients of one queue of the server at this URL, spread over `connections` connections.
pub(crate) async fn clients_of(url: &str, queue: &str, count: usize, connections: usize) -> Result<Vec<OurClient>> {
    let mut channels = Vec::new();
    for _ in 0..connections.min(count) {
        channels.push(channel_to(url).await?);
    }
    let channels = channels.iter().cycle().take(count);
    Ok(channels.enumerate().map(|(n, channel)| OurClient::new(channel.clone(), queue, n)).collect())
}

/// The configuration of a server on the rig's Redis.
pub(crate) fn config_of(rig: &Rig) -> Config {
    let mut config = Config::default();
    config.redis.url = rig.url();
    config
}

/// A simple queue that soon collects completed messages.
pub(crate) fn simple_queue() -> QueueConfig {
    QueueConfig {
        r#type: QueueType::Simple.into(),
        terminal_retention_ms: Some(RETENTION_MS),
        ..QueueConfig::default()
    }
}

/// An exclusive queue with this key, otherwise the same.
pub(crate) fn exclusive_queue(key: &str) -> QueueConfig {
    QueueConfig { r#type: QueueType::Exclusive.into(), exclusivity_key: key.to_owned(), ..simple_queue() }
}

/// One client of one queue.
#[derive(Clone)]
pub(crate) struct OurClient {
    pub(crate) calls: QueueClient<Channel>,
    pub(crate) queue: String,
    pub(crate) worker: String,
}

impl OurClient {
    fn new(channel: Channel, queue: &str, number: usize) -> OurClient {
        OurClient { calls: QueueClient::new(channel), queue: queue.to_owned(), worker: format!("worker-{number}") }
    }

    /// A request for up to `limit` messages, with the queue's lease and no wait.
    pub(crate) fn request(&self, limit: usize) -> DequeueRequest {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        DequeueRequest { queue: self.queue.clone(), worker: self.worker.clone(), limit, ..DequeueRequest::default() }
    }

    /// Leases messages.
    pub(crate) async fn lease(&mut self, request: DequeueRequest) -> Result<Vec<LeaseRef>, tonic::Status> {
        let leases = self.calls.dequeue(request).await?.into_inner().leases;
        Ok(leases
            .into_iter()
            .map(|lease| LeaseRef { id: lease.id, fencing_token: lease.fencing_token, ..Default::default() })
            .collect())
    }
}

impl LoadClient for OurClient {
    type Held = LeaseRef;

    async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
        let sent = drafts.len();
        let messages = drafts.into_iter().map(new_message).collect();
        let request = EnqueueRequest { queue: self.queue.clone(), messages };
        let results = self.calls.enqueue(request).await?.into_inner().results;
        ensure!(results.len() == sent, "{} results for {sent} messages", results.len());
        results.into_iter().try_for_each(|result| match result.outcome {
            Some(enqueue_result::Outcome::Ok(_)) => Ok(()),
            other => Err(anyhow!("enqueue refused: {other:?}")),
        })
    }

    async fn dequeue(&mut self, limit: usize) -> Result<Vec<LeaseRef>> {
        Ok(self.lease(self.request(limit)).await?)
    }

    async fn complete(&mut self, held: Vec<LeaseRef>) -> Result<()> {
        let sent = held.len();
        let request = CompleteRequest { queue: self.queue.clone(), leases: held };
        let results = self.calls.complete(request).await?.into_inner().results;
        ensure!(results.len() == sent, "{} results for {sent} leases", results.len());
        results.iter().try_for_each(succeeded)
    }
}

pub(crate) fn new_message(draft: Draft) -> NewMessage {
    let Draft { id, payload, priority, metadata } = draft;
    NewMessage { id, payload, priority, metadata, ..NewMessage::default() }
}

/// An error if the transition was refused.
pub(crate) fn succeeded(result: &TransitionResult) -> Result<()> {
    match &result.outcome {
        Some(transition_result::Outcome::Ok(_)) => Ok(()),
        other => Err(anyhow!("transition of '{}' refused: {other:?}", result.id)),
    }
}
