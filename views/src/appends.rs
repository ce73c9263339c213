//! What a log does with accepted views, whether it is in Redis or in Kafka.

use crate::Refusal;
use futures::future::BoxFuture;
use xxhash_rust::xxh3::xxh3_64;

/// A partition of a log, for those who append.
pub(crate) trait AppendViews: Send + Sync {
    /// Appends views, which are durable when this returns. `false`: the process that deduplicates them has no memory for more
    /// pairs, and nothing has changed.
    fn append<'a>(&'a self, views: &'a [u8]) -> BoxFuture<'a, Result<bool, Refusal>>;
}

/// The number of the partition, of so many, that has the views of a video.
pub(crate) fn partition_of(video: &str, partitions: usize) -> usize {
    (xxh3_64(video.as_bytes()) % partitions as u64) as usize
}
