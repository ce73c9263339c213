//! Which of many namespaces have a dirty counter: one command checks many idle namespaces.

use super::calls::of_link;
use super::namespaces::RedisNamespaces;
use crate::names::NamespaceName;
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use redis::Value;
use tallystone_lua::counter::ShardKeys;

/// Namespaces that one command checks.
const CHECKED_MAX: usize = 64;

impl RedisNamespaces {
    /// For each namespace, in their order, whether any of its counters is dirty. Redis deletes an empty sorted set, so one
    /// EXISTS shows that many namespaces have none. Where some have, halves are checked until it is clear which.
    pub async fn have_dirty(&self, names: &[NamespaceName]) -> Result<Vec<bool>, Refusal> {
        let mut have = vec![false; names.len()];
        let chunk_ends =
            (0..names.len()).step_by(CHECKED_MAX).map(|begin| (begin, names.len().min(begin + CHECKED_MAX)));
        let mut open: Vec<(usize, usize)> = chunk_ends.collect();
        while let Some((begin, end)) = open.pop() {
            let mut command = redis::cmd("EXISTS");
            for name in &names[begin..end] {
                let key = |shard| ShardKeys::new(name.as_str(), shard).key("dirty");
                command.arg((0..SHARDS).map(key).collect::<Vec<String>>());
            }
            let found = self.link().call(&command).await.map_err(of_link)?;
            match end - begin {
                _ if found == Value::Int(0) => {}
                1 => have[begin] = true,
                many => open.extend([(begin, begin + many / 2), (begin + many / 2, end)]),
            }
        }
        Ok(have)
    }
}
