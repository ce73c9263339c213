//! Both stores of a namespace on Redis: every change of a shard is one script call, atomic and durable before its answer.
//!
//! What lives here: the registry (`namespaces`), the calls (`append`, `log`, `events`, `prune`, `checkpoints`, `list`, `cache`), what they know of the store
//! (`clock`, `layout`) and the packed records that they share with the scripts (`record`, `token`).
//! What may not: rules of counting (the scripts and [`rollup`](crate::rollup)).

mod append;
mod cache;
mod checkpoints;
mod clock;
mod events;
mod layout;
mod list;
mod log;
mod namespaces;
mod prune;
mod record;
mod token;

pub use list::{CounterPage, ListedCounter};
pub use namespaces::{Namespace, RedisNamespaces};

use crate::names::NamespaceName;
use crate::namespace::{NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use clock::StoreClock;
use futures::future::try_join_all;
use layout::LayoutCache;
use redis::{Cmd, FromRedisValue, from_redis_value};
use std::sync::Arc;
use tallystone_link::{Clock, Link, ScriptReply};
use tallystone_lua::counter::{Answer, CounterScript, ShardKeys};

/// The texts of the scripts that a [`Link`] for these stores must know.
pub fn scripts() -> impl Iterator<Item = &'static str> {
    CounterScript::ALL.iter().map(|script| script.source())
}

/// Connections to one Redis, one for each shard; best effort takes any of them. Redis reads some kilobytes from each that
/// has something to say, then makes all of it durable with one fsync: on one connection a large batch would cost several.
pub type Links = Arc<[Link]>;

/// A namespace on a Redis: its event log and its checkpoints.
#[derive(Clone)]
pub struct RedisNamespace {
    links: Links,
    name: NamespaceName,
    config: Arc<NamespaceConfig>,
    revision: u64,
    clock: Clock,
    /// What time it is there, as far as this process knows.
    now: Arc<StoreClock>,
    layouts: Arc<[LayoutCache; SHARDS as usize]>,
}

impl RedisNamespace {
    /// The namespace as this revision of its configuration has it; its shards act on it from now on.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: there is a later revision.
    pub async fn open(
        links: Links,
        name: NamespaceName,
        config: NamespaceConfig,
        revision: u64,
        clock: Clock,
    ) -> Result<RedisNamespace, Refusal> {
        config.check()?;
        let (now, layouts) = (Arc::new(StoreClock::new(clock.clone())), Arc::default());
        let namespace = RedisNamespace { links, name, config: Arc::new(config), revision, clock, now, layouts };
        let configured = (0..SHARDS).map(async |shard| {
            namespace.run(shard, &namespace.log_call(CounterScript::Configure, &namespace.keys(shard).log())).await
        });
        try_join_all(configured).await?;
        Ok(namespace)
    }

    /// What it is told.
    pub fn config(&self) -> &NamespaceConfig {
        &self.config
    }

    /// Which revision of that this is.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its name.
    pub fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// The store's time as far as this process knows, in Unix ms: never ahead of the store's clock.
    pub fn now_ms(&self) -> u64 {
        self.now.now_ms()
    }

    fn link(&self, shard: u16) -> &Link {
        &self.links[usize::from(shard) % self.links.len()]
    }

    fn keys(&self, shard: u16) -> ShardKeys {
        ShardKeys::new(self.name.as_str(), shard)
    }

    /// A call of a script of the event log, with the head of arguments that `counter/shard.lua` reads.
    fn log_call(&self, script: CounterScript, keys: &[String]) -> Cmd {
        let mut command = call(script, keys);
        command.arg(self.clock.argument()).arg(self.revision);
        command
    }

    /// A command that only reads.
    async fn query<T: FromRedisValue>(&self, shard: u16, command: &Cmd) -> Result<T, Refusal> {
        let value = self.link(shard).call(command).await.map_err(of_link)?;
        from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string()))
    }

    /// A script, whatever it answers.
    async fn run_any(&self, shard: u16, command: &Cmd) -> Result<ScriptReply<Answer>, Refusal> {
        let value = self.link(shard).eval(command, true).await.map_err(of_link)?;
        Ok(ScriptReply::read(value, Answer::from_code)?)
    }

    async fn run(&self, shard: u16, command: &Cmd) -> Result<ScriptReply<Answer>, Refusal> {
        let reply = self.run_any(shard, command).await?;
        match reply.answer {
            Answer::Ok => Ok(reply),
            Answer::Stale | Answer::NoShard => Err(Refusal::Stale),
            other => Err(defect(&format!("{other:?}"))),
        }
    }
}

fn call(script: CounterScript, keys: &[String]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.sha1()).arg(keys.len()).arg(keys);
    command
}

fn of_link(error: tallystone_link::LinkError) -> Refusal {
    tallystone_model::Refusal::from(error).into()
}

fn defect(what: &str) -> Refusal {
    Refusal::Internal(format!("a script answered {what}"))
}
