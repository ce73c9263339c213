//! Which of many namespaces have a dirty counter: one command checks many idle namespaces.

use super::calls::of_link;
use super::namespaces::RedisNamespaces;
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use redis::Value;
use tallystone_lua::counter::CounterShardKeys;

/// Namespaces that one command checks.
const CHECKED_MAX: usize = 64;

impl RedisNamespaces {
    /// For each namespace, given by its [tag](super::Namespace::tag), in their order, whether any of its counters is dirty.
    /// Redis deletes an empty sorted set, so one EXISTS shows that many namespaces have none. Where some have, halves are
    /// checked until it is clear which.
    pub async fn have_dirty(&self, tags: &[String]) -> Result<Vec<bool>, Refusal> {
        let mut have = vec![false; tags.len()];
        for partition in 0..self.partitions().all().len() {
            self.find_dirty(partition, tags, &mut have).await?;
        }
        Ok(have)
    }

    /// The same, of the shards in one partition.
    async fn find_dirty(&self, number: usize, tags: &[String], have: &mut [bool]) -> Result<(), Refusal> {
        let partition = &self.partitions().all()[number];
        let chunk_ends = (0..tags.len()).step_by(CHECKED_MAX).map(|begin| (begin, tags.len().min(begin + CHECKED_MAX)));
        let mut open: Vec<(usize, usize)> = chunk_ends.collect();
        while let Some((begin, end)) = open.pop() {
            let keys = tags[begin..end].iter().flat_map(|tag| {
                let shards = (0..SHARDS).filter(move |shard| self.partitions().number_of(tag, *shard) == number);
                shards.map(move |shard| CounterShardKeys::within(&partition.keyspace, tag, shard).key("dirty"))
            });
            let keys: Vec<String> = keys.collect();
            if keys.is_empty() {
                continue;
            }
            let found = partition.any_link().call(redis::cmd("EXISTS").arg(keys)).await.map_err(of_link)?;
            match end - begin {
                _ if found == Value::Int(0) => {}
                1 => have[begin] = true,
                many => open.extend([(begin, begin + many / 2), (begin + many / 2, end)]),
            }
        }
        Ok(())
    }
}
