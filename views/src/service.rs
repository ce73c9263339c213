//! The view counter as one object: it accepts views, and reads their counts.

use crate::Refusal;
use crate::appends::AppendViews;
use crate::config::{ViewNamespace, ViewsConfig};
use crate::dedupe::{Window, day_at};
use crate::ingest::{Ingest, answer};
use crate::kafka::{KafkaLog, Members, Work, membership_count};
use crate::kind::{Kind, KindName, day_prefix, kinds_of};
use crate::log::ViewLog;
use crate::metrics;
use crate::owner::{Owner, PairsMemory, Sink};
use crate::reads::Reads;
use crate::steps::StepObserver;
use crate::view::View;
use futures::future::{BoxFuture, join_all, try_join_all};
use jiff::civil::Date;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_link::{StoreStatus, wall_ms};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The view counter.
pub struct ViewService {
    ingest: Ingest,
    reads: Reads,
    namespaces: HashMap<String, Vec<ReadKind>>,
    /// Keeps the probes of the log alive.
    log: LogHandle,
}

enum LogHandle {
    Redis(Arc<ViewLog>),
    Kafka(Arc<KafkaLog>),
}

impl LogHandle {
    fn status(&self) -> watch::Receiver<StoreStatus> {
        match self {
            LogHandle::Redis(log) => log.status(),
            LogHandle::Kafka(log) => log.status(),
        }
    }

    fn steps(&self) -> &StepObserver {
        match self {
            LogHandle::Redis(log) => log.steps(),
            LogHandle::Kafka(log) => log.steps(),
        }
    }
}

/// What a reader needs of a kind.
struct ReadKind {
    kind: Kind,
    counters: Arc<str>,
}

/// The counts of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Views, each pair of video and user once in a window.
    pub views: i64,
    /// Every view, if the namespace counts them and the counters answer.
    pub page_views: Option<i64>,
    /// The day, and how many users have seen the video on it, if the namespace counts them and the counters
    /// answer: after midnight no process has an earlier count of the day.
    pub daily_visitors: Option<(Date, i64)>,
    /// How long ago the oldest of these counts was read from the counters.
    pub age: Duration,
}

/// The work of one partition.
pub struct PartitionTask(Owner);

impl PartitionTask {
    /// Deduplicates the views of the partition, and sends what they add to the counters, until the token is cancelled.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.0.run(stopping))
    }
}

/// The deduplication of a log in Kafka.
#[derive(Clone)]
pub struct KafkaTasks(Members);

impl KafkaTasks {
    /// One member of the consumer group. Deduplicates the views of its partitions, until the token is cancelled. Blocks its
    /// thread, so it needs a dedicated one.
    pub fn run_member(&self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().run_one(stopping))
    }

    /// Where the consumer of the deltas writes how many wait for the counters: the more, the longer views gather for a commit.
    pub fn waiting_deltas(&self) -> Arc<AtomicU64> {
        self.0.work.waiting_deltas.clone()
    }

    /// Waits until the namespaces of the counters exist: before that, no delta may be sent to them.
    pub fn prepared(&self) -> BoxFuture<'static, ()> {
        let members = self.0.clone();
        Box::pin(async move { members.prepared().await })
    }
}

impl ViewService {
    /// Serves the views of a log; `counters` has their counts, and repeats no call by itself. Also returns the work of each
    /// partition, for a thread each.
    pub fn start(
        config: &ViewsConfig,
        log: ViewLog,
        counters: &CounterClient,
    ) -> (Arc<ViewService>, Vec<PartitionTask>) {
        metrics::describe();
        let log = Arc::new(log);
        let (sink, holder) = (Arc::new(Sink::new(counters.clone())), Uuid::new_v4().simple().to_string());
        let memory = Arc::new(PairsMemory::new(usize::try_from(config.pairs_bytes_max).unwrap_or(usize::MAX)));
        let appended: Vec<Arc<Notify>> = log.partitions().iter().map(|_| Arc::default()).collect();
        let lease = Duration::from_millis(config.lease_ms.into());
        let task = |(partition, appended): (&Arc<_>, &Arc<Notify>)| {
            let (log, partition, appended) = (log.clone(), Arc::clone(partition), appended.clone());
            let (namespaces, sink, holder) = (config.namespaces.clone(), sink.clone(), holder.clone());
            PartitionTask(Owner { log, partition, namespaces, sink, memory: memory.clone(), appended, holder, lease })
        };
        let tasks = log.partitions().iter().zip(&appended).map(task).collect();
        let appends = log.partitions().iter().map(|one| Arc::clone(one) as Arc<dyn AppendViews>).collect();
        let service = ViewService::over(config, appends, &appended, counters, LogHandle::Redis(log));
        (service, tasks)
    }

    /// Serves the views of a log in Kafka. Also returns its deduplication, and how many members of the group this process is to
    /// be. What they write to the topic of deltas must be counted by `tallystone-ingest`.
    pub fn start_on_kafka(
        config: &ViewsConfig,
        log: KafkaLog,
        counters: &CounterClient,
    ) -> (Arc<ViewService>, KafkaTasks, usize) {
        metrics::describe();
        let log = Arc::new(log);
        let memory = Arc::new(PairsMemory::new(usize::try_from(config.pairs_bytes_max).unwrap_or(usize::MAX)));
        let partitions = log.partitions(&memory);
        let names = config.namespaces.iter().flat_map(kinds_of).map(|kind| kind.counters).collect();
        let (namespaces, waiting_deltas) = (config.namespaces.clone(), Arc::default());
        let work = Work { log: log.clone(), partitions: partitions.clone(), namespaces, memory, waiting_deltas };
        let members = Members { work: Arc::new(work), sink: Arc::new(Sink::new(counters.clone())), counters: names };
        let appends: Vec<_> = partitions.into_iter().map(|one| -> Arc<dyn AppendViews> { one }).collect();
        // Members poll Kafka.
        let appended: Vec<Arc<Notify>> = appends.iter().map(|_| Arc::default()).collect();
        let service = ViewService::over(config, appends, &appended, counters, LogHandle::Kafka(log));
        (service, KafkaTasks(members), membership_count(config.partitions))
    }

    fn over(
        config: &ViewsConfig,
        appends: Vec<Arc<dyn AppendViews>>,
        appended: &[Arc<Notify>],
        counters: &CounterClient,
        log: LogHandle,
    ) -> Arc<ViewService> {
        let ingest = Ingest::start(appends, config.waiting_bytes_max as usize, appended, log.steps());
        let namespaces: HashMap<String, Vec<ReadKind>> =
            config.namespaces.iter().map(|one| (one.name.clone(), read_kinds(one))).collect();
        let of_counters = namespaces.values().flatten().map(|kind| kind.counters.clone());
        let reads = Reads::start(counters.clone(), of_counters, config.counts_kept_max as usize);
        Arc::new(ViewService { ingest, reads, namespaces, log })
    }

    /// What the last probe of the log found, and every change of that.
    pub fn log_status(&self) -> watch::Receiver<StoreStatus> {
        self.log.status()
    }

    /// Accepts views of one namespace, and returns for each whether it is durable.
    ///
    /// # Errors
    /// None of them is in the log.
    pub(crate) async fn accept(
        &self,
        namespace: &str,
        views: &[View<'_>],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        self.kinds(namespace)?;
        let (accepted, group_of_view) = self.ingest.add(namespace, views)?;
        let results = join_all(accepted.into_iter().map(answer)).await;
        Ok(group_of_view.into_iter().map(|group| results[group].clone()).collect())
    }

    /// Accepts a view, which is durable when this returns.
    pub(crate) async fn accept_one(&self, namespace: &str, view: &View<'_>) -> Result<(), Refusal> {
        self.kinds(namespace)?;
        answer(self.ingest.add_one(namespace, view)?).await
    }

    /// The counts of a video; `day`: of the daily visitors; `None`: today.
    pub(crate) async fn counts(&self, namespace: &str, video: &str, day: Option<Date>) -> Result<Counts, Refusal> {
        let kinds = self.kinds(namespace)?;
        let read = kinds.iter().map(async |ReadKind { kind, counters }| {
            let day = match &kind.window {
                // This machine's clock chooses the day that a reader sees, and no window.
                Window::Day(zone) => Some(day.unwrap_or_else(|| day_at(zone, wall_ms()).0)),
                _ => None,
            };
            let counter = day.map_or_else(|| video.to_owned(), |day| day_prefix(day) + video);
            let key = (counters.clone(), counter);
            let known = match kind.name {
                KindName::Views => Some(self.reads.get(key).await?),
                _ => self.reads.get_soon(key).await,
            };
            Ok::<_, Refusal>((kind.name, day, known))
        });
        let read = try_join_all(read).await?;
        let mut counts = Counts { views: 0, page_views: None, daily_visitors: None, age: Duration::ZERO };
        for (name, day, known) in read {
            let Some(known) = known else { continue };
            match name {
                KindName::Views => counts.views = known.count,
                KindName::PageViews => counts.page_views = Some(known.count),
                KindName::DailyVisitors => counts.daily_visitors = day.map(|day| (day, known.count)),
            }
            counts.age = counts.age.max(known.read_at.elapsed());
        }
        Ok(counts)
    }

    fn kinds(&self, namespace: &str) -> Result<&[ReadKind], Refusal> {
        let found = self.namespaces.get(namespace).map(Vec::as_slice);
        found.ok_or_else(|| Refusal::NamespaceNotFound(namespace.to_owned()))
    }
}

fn read_kinds(namespace: &ViewNamespace) -> Vec<ReadKind> {
    let kinds = kinds_of(namespace).into_iter();
    kinds.map(|kind| ReadKind { counters: kind.counters.as_str().into(), kind }).collect()
}
