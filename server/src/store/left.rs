//! The list of deleted queues whose outboxes are still to be read. A relay removes what it has read. Where there is none, the
//! outboxes end by themselves, and this removes their names.

use super::entry::read;
use super::shared::Shared;
use tallystone_link::ScanPosition;
use tallystone_model::{Refusal, Shard};

/// Names that one command examines.
const EXAMINED: usize = 500;

impl Shared {
    /// Removes the names whose outboxes no longer exist. Returns how many.
    pub(super) async fn forget_left_outboxes(&self) -> Result<usize, Refusal> {
        let (mut position, mut forgotten) = (Some(ScanPosition::default()), 0);
        let (key, count) = (self.keyspace.left_outboxes(), EXAMINED.to_string());
        while let Some(from) = position {
            let (found, next) = self.link.scan(from, &["SSCAN", &key], &["COUNT", &count]).await?;
            let tags: Vec<String> = read(found)?;
            let gone = self.without("outbox", tags).await?;
            if !gone.is_empty() {
                self.link.call(redis::cmd("SREM").arg(self.keyspace.left_outboxes()).arg(&gone)).await?;
                // A queue that was created again and deleted meanwhile has an outbox to be read.
                let still_gone = self.without("outbox", gone.clone()).await?;
                forgotten += still_gone.len();
                let back: Vec<String> = gone.into_iter().filter(|tag| !still_gone.contains(tag)).collect();
                if !back.is_empty() {
                    self.link.call(redis::cmd("SADD").arg(self.keyspace.left_outboxes()).arg(back)).await?;
                }
            }
            position = next;
        }
        Ok(forgotten)
    }

    /// Removes the name of a deleted shard without an outbox. Returns whether it is gone.
    pub(super) async fn forget_left_outbox(&self, shard: &Shard) -> Result<bool, Refusal> {
        let (key, tag) = (self.keyspace.left_outboxes(), shard.tag());
        self.link.call(redis::cmd("SREM").arg(&key).arg(&tag)).await?;
        // A queue that was created again and deleted meanwhile has an outbox to be read.
        let is_gone = !self.without("outbox", vec![tag.clone()]).await?.is_empty();
        if !is_gone {
            self.link.call(redis::cmd("SADD").arg(&key).arg(&tag)).await?;
        }
        Ok(is_gone)
    }

    /// Those of these names whose shards have no such key.
    pub(super) async fn without(&self, key: &str, tags: Vec<String>) -> Result<Vec<String>, Refusal> {
        let mut exist = redis::pipe();
        for shard in tags.iter().filter_map(|tag| Shard::of_tag(tag)) {
            exist.cmd("EXISTS").arg(self.keyspace.shard(&shard).key(key));
        }
        if exist.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = self.link.calls(&exist, false).await?.into_iter();
        let mut without = Vec::new();
        for tag in tags {
            // What is no name is left to those who wrote it.
            if Shard::of_tag(&tag).is_some() && !found.next().map(read::<bool>).transpose()?.unwrap_or(true) {
                without.push(tag);
            }
        }
        Ok(without)
    }
}
