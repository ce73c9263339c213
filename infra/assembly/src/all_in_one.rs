//! Queue, counters, rollup worker, view counter and indexer in one process, as `tallystone dev` and the demo run them.

use crate::client::ClientConfig;
use crate::counter_sets::counter_sets;
use crate::counters::{attach_counters, connect_counters, connect_namespaces, queue_client};
use crate::indexer::attach_indexers;
use crate::queue::queue_over;
use crate::rollup_worker::{RollupWorker, own_name};
use crate::views::attach_views;
use crate::{AssemblyError, Config, History};
use std::sync::Arc;
use tallystone_counters::{NamespaceConfig, NamespaceName};
use tallystone_server::store::RedisStore;
use tallystone_serving::{Host, Ports, Running, ServeError};
use tallystone_workers::WorkerOptions;
use tokio::net::TcpListener;

/// The ports, bound before anything starts.
pub struct Listeners {
    /// Of the queue.
    pub queue: TcpListener,
    /// Of the counters.
    pub counters: TcpListener,
}

/// The queue and the counters of one Redis, running in this process, with a rollup worker and a view counter if wanted.
pub struct AllInOne {
    queue: Running,
    counters: Running,
    rollup_worker: Option<RollupWorker>,
    views: Option<Running>,
}

impl AllInOne {
    /// Starts the queue with its history, then the counters, in plain text and for callers without identities. Where
    /// Kafka and Elasticsearch are configured, an indexer runs in the queue's host.
    pub async fn start(config: &Config, listeners: Listeners) -> Result<AllInOne, AssemblyError> {
        config.check_queue()?;
        config.check_counters()?;
        let store = Arc::new(RedisStore::connect(config.redis_options()?).await?);
        let namespaces = connect_counters(config).await?;
        let history = History::open(config)?;
        let elastic = history.elastic.clone();
        let ports = Ports::plain(config.limits);
        let mut host = queue_over(store, history, config, &ports)?;
        if let (Some(kafka), Some(elastic)) = (config.kafka.options()?, elastic) {
            host = attach_indexers(host, elastic, config, kafka);
        }
        let queue = Running::start(host, listeners.queue)?;
        let client = queue_client("server.listen", &queue.url(), &ClientConfig::default())?;
        let host = Host::new().ports(&ports).http_hosts(&config.counters.http_hosts);
        let counters = attach_counters(host, namespaces, Some(client), config.counters.waiting());
        let counters = Running::start(counters, listeners.counters)?;
        Ok(AllInOne { queue, counters, rollup_worker: None, views: None })
    }

    /// Also rolls the counters up in this process.
    pub async fn with_rollup_worker(mut self, config: &Config) -> Result<AllInOne, AssemblyError> {
        config.compact.check()?;
        let namespaces = connect_counters(config).await?;
        let client = queue_client("server.listen", &self.queue.url(), &ClientConfig::default())?;
        let options = WorkerOptions { name: own_name(), records: None, counter_sets: Some(counter_sets(config)?) };
        self.rollup_worker = Some(RollupWorker::start(namespaces, client, options));
        Ok(self)
    }

    /// Also counts views in this process.
    pub async fn with_views(mut self, config: &Config, listener: TcpListener) -> Result<AllInOne, AssemblyError> {
        config.check_views()?;
        let host = Host::new().ports(&Ports::plain(config.limits)).http_hosts(&config.views.http_hosts);
        let host = attach_views(host, config, &self.counters.url(), &ClientConfig::default()).await?;
        self.views = Some(Running::start(host, listener)?);
        Ok(self)
    }

    /// Where the queue is served.
    pub fn queue_url(&self) -> String {
        self.queue.url()
    }

    /// Where the counters are served.
    pub fn counters_url(&self) -> String {
        self.counters.url()
    }

    /// Where the view counter is served, if it is.
    pub fn views_url(&self) -> Option<String> {
        self.views.as_ref().map(Running::url)
    }

    /// Waits until a part ends by itself, which is a failure, and returns why.
    pub async fn ended(&mut self) -> AssemblyError {
        let of = |ended: Result<(), ServeError>, part| ended.err().map_or(AssemblyError::Ended(part), Into::into);
        let rollup_worker = async {
            match &mut self.rollup_worker {
                Some(worker) => worker.ended().await,
                None => std::future::pending().await,
            }
        };
        let views = async {
            match &mut self.views {
                Some(views) => views.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = views => of(ended, "the view counter"),
            ended = self.queue.ended() => of(ended, "the queue's server"),
            ended = self.counters.ended() => of(ended, "the counters' server"),
            () = rollup_worker => AssemblyError::Ended("the rollup worker"),
        }
    }

    /// Stops in order: the view counter, then the worker, which gives its jobs back to the queue, then the counters, then the
    /// queue.
    pub async fn stop(self) -> Result<(), AssemblyError> {
        let views = match self.views {
            Some(views) => views.stop().await,
            None => Ok(()),
        };
        if let Some(worker) = self.rollup_worker {
            worker.stop().await;
        }
        let counters = self.counters.stop().await;
        self.queue.stop().await?;
        counters?;
        Ok(views?)
    }
}

/// Creates a namespace, unless it exists.
pub async fn create_namespace(
    config: &Config,
    name: &NamespaceName,
    with: NamespaceConfig,
) -> Result<(), AssemblyError> {
    let namespaces = connect_namespaces(&config.redis).await?;
    if namespaces.get(name).await?.is_none() {
        namespaces.put(name, with).await?;
    }
    Ok(())
}
