//! The end of a namespace (N14). It leaves the registry, then its shards refuse every call, then its keys go, in commands
//! of a bounded length. A separate field of the registry has its entry until then and for an hour more. So whichever
//! process finds it continues with the deletion, and each step may be repeated. A later namespace of the same name has other
//! keys.

use super::cache::CachePosition;
use super::calls::{call, defect, of_archive, of_link};
use super::fan_out::homes;
use super::prune::UNLINK_MAX;
use super::record::read;
use super::{Namespace, RedisNamespace, RedisNamespaces};
use crate::names::NamespaceName;
use crate::namespace::{CounterType, SHARDS};
use crate::refusal::Refusal;
use tallystone_link::ScriptReply;
use tallystone_lua::counter::{
    ARCHIVE, BEHIND, CROSSINGS, CounterAnswer, CounterScript, DELETED, DELETED_FIELD, DELETED_REVISION, KEPT, NAMES,
    RECOUNTS, REGIONS, SETTLED_NAMES,
};

/// The longest slice of events, in ms: a server that died may have left one behind the time to which events are dropped.
const SLICE_MS_MAX: u64 = 31 * 86_400_000;
/// A namespace keeps its entry for this time after its deletion: a process that hung may have written a key again.
const KEPT_MS: u64 = 3_600_000;

/// A deleted namespace that has not gone altogether.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedNamespace {
    /// As it was deleted.
    pub namespace: Namespace,
    /// When it was deleted, in Unix ms.
    deleted_ms: u64,
    /// Its keys were removed once.
    is_removed: bool,
    /// As the registry has it.
    field: String,
    entry: Vec<u8>,
}

impl DeletedNamespace {
    fn decode(field: String, entry: Vec<u8>) -> Result<DeletedNamespace, Refusal> {
        let unreadable = || defect("an unreadable deleted namespace");
        let (name, _) = field.trim_start_matches(DELETED_FIELD).rsplit_once(':').ok_or_else(unreadable)?;
        let name = NamespaceName::parse(name)?;
        let (head, raw) = entry.split_at_checked(7).ok_or_else(unreadable)?;
        let (deleted_ms, is_removed) = (read(&head[..6]), head[6] > 0);
        Ok(DeletedNamespace { namespace: Namespace::decode(name, raw)?, deleted_ms, is_removed, field, entry })
    }
}

impl RedisNamespaces {
    /// Deletes a namespace. When this returns, its shards refuse every call. Other servers read it until they have polled (a
    /// second); what they add to BEST_EFFORT counters is stale. `incarnation`: only this one; the call may then be repeated,
    /// for an hour.
    ///
    /// # Errors
    /// [`Refusal::NamespaceNotFound`]. [`Refusal::Unavailable`] after its first step: the namespace is deleted by whichever
    /// process finds its entry.
    pub async fn delete(&self, name: &NamespaceName, incarnation: Option<u64>) -> Result<DeletedNamespace, Refusal> {
        self.verify().await?;
        let mut command = call(CounterScript::DeleteNamespace, &[self.registry()]);
        self.clock().stamp(&mut command);
        let wanted = incarnation.map(|incarnation| incarnation.to_string()).unwrap_or_default();
        command.arg(name.as_str()).arg(wanted);
        let value = self.clock().eval(self.link(), &command, true).await?;
        let mut reply = ScriptReply::read(value, CounterAnswer::from_code)?;
        if reply.answer != CounterAnswer::Ok {
            // An earlier try may have deleted it, and its server may have died before the shards were closed.
            // Those whose keys were removed had closed shards before: a name may have been deleted hundreds of times.
            let is_open = |deleted: &&DeletedNamespace| deleted.namespace.name == *name && !deleted.is_removed;
            for deleted in self.deleted().await?.iter().filter(is_open) {
                self.ended(deleted).await?;
            }
            return Err(Refusal::NamespaceNotFound { namespace: name.to_string() });
        }
        let field = format!("{DELETED_FIELD}{name}:{}", reply.number()?);
        let deleted = DeletedNamespace::decode(field, reply.bytes()?.to_vec())?;
        self.ended(&deleted).await.map_err(Refusal::after_a_change)?;
        Ok(deleted)
    }

    /// The deleted namespaces that have not gone altogether.
    pub async fn deleted(&self) -> Result<Vec<DeletedNamespace>, Refusal> {
        let entries = self.entries().await?.into_iter().filter(|(field, _)| field.starts_with(DELETED_FIELD));
        entries.map(|(field, entry)| DeletedNamespace::decode(field, entry)).collect()
    }

    /// Removes the keys of a deleted namespace; an hour later once more, and then its entry. Returns whether there was
    /// something to do. `meanwhile` removes what is not in this store, such as its rollup queues.
    pub async fn remove(
        &self,
        deleted: &DeletedNamespace,
        meanwhile: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<bool, Refusal> {
        let is_old = self.right_ms().await? >= deleted.deleted_ms + KEPT_MS;
        if deleted.is_removed && !is_old {
            return Ok(false);
        }
        let namespace = self.ended(deleted).await?;
        match namespace.config.counter_type {
            CounterType::BestEffort => namespace.remove_cached().await?,
            CounterType::Eventual | CounterType::Accurate => {
                for shard in 0..SHARDS {
                    namespace.remove_shard(shard).await?;
                }
            }
        }
        if namespace.config.archived {
            namespace.archive()?.delete_namespace(&namespace.tag).await.map_err(of_archive)?;
        }
        meanwhile.await?;
        let mut command = redis::cmd("HSET");
        command.arg(self.registry()).arg(&deleted.field);
        if is_old {
            for shard in 0..SHARDS {
                namespace.unlink_keys(shard, &namespace.keys(shard).log()).await?;
            }
            command = redis::cmd("HDEL");
            command.arg(self.registry()).arg(&deleted.field);
        } else {
            let mut entry = deleted.entry.clone();
            entry[6] = 1;
            command.arg(entry);
        }
        self.link().call(&command).await.map_err(of_link)?;
        Ok(true)
    }

    /// The namespace, whose shards refuse every call from now on: they follow a revision that no server has.
    async fn ended(&self, deleted: &DeletedNamespace) -> Result<RedisNamespace, Refusal> {
        self.open(&Namespace { revision: DELETED_REVISION, ..deleted.namespace.clone() }).await
    }
}

impl RedisNamespace {
    /// Removes everything of a shard but its state, which refuses calls.
    async fn remove_shard(&self, shard: u16) -> Result<(), Refusal> {
        let keys = self.keys(shard);
        let (latest_ms, pruned_to_ms) = self.reached(shard).await?;
        let bucket_ms = self.config.seconds_per_bucket * 1_000;
        let (first, last) = (pruned_to_ms.saturating_sub(SLICE_MS_MAX) / bucket_ms, latest_ms / bucket_ms);
        let kept: Vec<u64> = self.kept(shard).await?.into_iter().collect();
        self.unlink(shard, &kept).await?;
        for from in (first..=last).step_by(UNLINK_MAX) {
            let buckets: Vec<u64> = (from..=last).take(UNLINK_MAX).collect();
            self.unlink(shard, &buckets).await?;
        }
        // Redis frees the memory of a large key in the background.
        let others = ["counts", DELETED, RECOUNTS, CROSSINGS, BEHIND, REGIONS, KEPT, ARCHIVE, SETTLED_NAMES];
        let names = NAMES[1..].iter().chain(&others);
        self.unlink_keys(shard, &names.map(|name| keys.key(name)).collect::<Vec<String>>()).await
    }

    async fn remove_cached(&self) -> Result<(), Refusal> {
        let mut next = Some(CachePosition::default());
        while let Some(position) = next {
            let (found, after) = self.cache_scan(position, UNLINK_MAX).await?;
            for (shard, numbers) in homes(found.iter()) {
                let keys = self.keys(shard);
                let keys: Vec<String> = numbers.iter().map(|number| keys.cached(found[*number].as_str())).collect();
                self.unlink_keys(shard, &keys).await?;
            }
            next = after;
        }
        Ok(())
    }

    async fn unlink_keys(&self, shard: u16, keys: &[String]) -> Result<(), Refusal> {
        if keys.is_empty() {
            return Ok(());
        }
        self.link(shard).call(redis::cmd("UNLINK").arg(keys)).await.map(drop).map_err(of_link)
    }
}
