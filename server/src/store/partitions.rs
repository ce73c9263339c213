//! What concerns all partitions of the store: lists over them (decision 0084).

use super::entry::read;
use super::marks::Kept;
use super::queues::READS_AT_ONCE;
use super::shared::Shared;
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use std::sync::Arc;
use std::time::Duration;
use tallystone_lua::keys::Keyspace;
use tallystone_model::store::{Page, Queue};
use tallystone_model::{Applied, QueueName, Refusal, Shard};
use tokio::time::timeout;

/// The partition with the keys of a shard.
pub(super) fn of<'a>(partitions: &'a [Arc<Shared>], shard: &Shard) -> &'a Arc<Shared> {
    match partitions {
        [whole] => whole,
        partitions => {
            let count = u16::try_from(partitions.len()).unwrap_or(u16::MAX);
            &partitions[usize::from(Keyspace::number_of(shard, count))]
        }
    }
}

/// The queues with this prefix, in order of name, after the cursor.
pub(super) async fn list_queues(
    partitions: &[Arc<Shared>],
    prefix: &str,
    cursor: &str,
    limit: usize,
) -> Result<Page<Queue>, Refusal> {
    let pages = future::try_join_all(partitions.iter().map(|partition| partition.names(prefix, cursor, limit))).await?;
    let mut names: Vec<(String, &Arc<Shared>)> = Vec::new();
    for (page, partition) in pages.into_iter().zip(partitions) {
        names.extend(page.into_iter().map(|name| (name, partition)));
    }
    names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    names.truncate(limit);
    let next_cursor = match names.last() {
        Some((last, _)) if names.len() == limit => last.clone(),
        _ => String::new(),
    };
    let queue = async |(name, partition): (String, &Arc<Shared>)| {
        match partition.get_queue(&QueueName::parse("name", &name)?).await {
            Ok(queue) => Ok(Some(queue)),
            // Registered, but not created yet or deleted already.
            Err(Refusal::QueueNotFound { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    };
    let queues: Vec<Option<Queue>> = stream::iter(names).map(queue).buffered(READS_AT_ONCE).try_collect().await?;
    Ok(Page { items: queues.into_iter().flatten().collect(), next_cursor })
}

impl Shared {
    /// Names of the registry with this prefix, in order, after the cursor.
    async fn names(&self, prefix: &str, cursor: &str, limit: usize) -> Result<Vec<String>, Refusal> {
        let (from, to) = super::queues::lexical_range(prefix, cursor);
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(self.keyspace.queues()).arg(from).arg(to).arg("LIMIT").arg(0).arg(limit);
        read(self.link.call(&command).await?)
    }
}

/// The longest wait for what a partition keeps. A prefix with many queues takes some seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What each partition keeps for the queues of this prefix. It waits for a partition, of several, only so long.
pub(super) async fn kept(partitions: &[Arc<Shared>], prefix: &str, with_bytes: bool) -> Vec<Result<Kept, Refusal>> {
    if let [whole] = partitions {
        return vec![whole.kept(prefix, with_bytes).await];
    }
    let of_partition = async |partition: &Arc<Shared>| {
        let late = || Refusal::Unavailable { applied: Applied::No, why: "Redis did not say what it keeps".to_owned() };
        timeout(PATIENCE, partition.kept(prefix, with_bytes)).await.unwrap_or_else(|_| Err(late()))
    };
    future::join_all(partitions.iter().map(of_partition)).await
}

/// Reads something of many shards in their order: from each partition what concerns its own.
pub(super) async fn of_shards<T, F: Future<Output = Result<Vec<T>, Refusal>>>(
    partitions: &[Arc<Shared>],
    shards: &[&Shard],
    read: impl Fn(Arc<Shared>, Vec<Shard>) -> F,
) -> Result<Vec<T>, Refusal> {
    let count = u16::try_from(partitions.len()).unwrap_or(u16::MAX);
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); partitions.len()];
    for (place, shard) in shards.iter().enumerate() {
        places[usize::from(Keyspace::number_of(shard, count))].push(place);
    }
    let mut found: Vec<Option<T>> = shards.iter().map(|_| None).collect();
    for (partition, places) in partitions.iter().zip(places) {
        if places.is_empty() {
            continue;
        }
        let of_partition = places.iter().map(|place| shards[*place].clone()).collect();
        for (place, item) in places.into_iter().zip(read(partition.clone(), of_partition).await?) {
            found[place] = Some(item);
        }
    }
    Ok(found.into_iter().flatten().collect())
}
