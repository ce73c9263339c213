//! The view counter as one object: it accepts views, and reads their counts.

use crate::Refusal;
use crate::config::{ViewNamespace, ViewsConfig};
use crate::dedupe::{Window, day_at};
use crate::ingest::{Ingest, answer};
use crate::kind::{Kind, KindName, day_prefix, kinds_of};
use crate::log::ViewLog;
use crate::metrics;
use crate::owner::{Owner, PairsMemory, Sink};
use crate::reads::Reads;
use crate::view::View;
use futures::future::{BoxFuture, join_all, try_join_all};
use jiff::civil::Date;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_link::{StoreStatus, wall_ms};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The view counter.
pub struct ViewService {
    log: Arc<ViewLog>,
    ingest: Ingest,
    reads: Reads,
    namespaces: HashMap<String, Vec<ReadKind>>,
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
        let task = |(partition, appended): (&Arc<_>, &Arc<Notify>)| {
            let (log, partition, appended) = (log.clone(), Arc::clone(partition), appended.clone());
            let (namespaces, sink, holder) = (config.namespaces.clone(), sink.clone(), holder.clone());
            PartitionTask(Owner { log, partition, namespaces, sink, memory: memory.clone(), appended, holder })
        };
        let tasks = log.partitions().iter().zip(&appended).map(task).collect();
        let ingest = Ingest::start(log.clone(), config.waiting_bytes_max as usize, &appended);
        let reads = Reads::start(counters.clone(), config.counts_kept_max as usize);
        let namespaces = config.namespaces.iter().map(|one| (one.name.clone(), read_kinds(one))).collect();
        (Arc::new(ViewService { log, ingest, reads, namespaces }), tasks)
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
