//! The preflight check of a Redis (Q15, Q16): a server works only with one that is recent, durable and never evicts.

use crate::acl::{Loading, loading};
use crate::error::is_of_a_replica;
use crate::loading::until_loaded;
use crate::reply::field;
use crate::{Link, LinkError};
use redis::ErrorKind;
use std::collections::BTreeMap;
use tallystone_model::Refusal;

/// The oldest Redis whose scripts can declare their flags.
const VERSION_MIN: (u64, u64) = (7, 0);

/// The oldest Redis that has WAITAOF. Each Valkey says that it is this Redis.
const VERSION_OF_WAITAOF: (u64, u64) = (7, 2);

/// The settings without which acknowledged writes may be lost. With `no-appendfsync-on-rewrite yes` there is no fsync while
/// Redis rewrites its file.
const WANTED: [(&str, &str); 4] = [
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory-policy", "noeviction"),
];

/// Without it, a Redis whose replicas are unavailable executes a call that then waits for them in vain: each try to lease a message
/// costs it an attempt.
const REPLICAS_MIN: &str = "min-replicas-to-write";

/// Why the preflight check refused a Redis.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be parsed.
    #[error("redis.url: {0}")]
    Address(String),
    /// A file of `[redis]`, or of another section about a Redis, cannot be used.
    #[error("{section}.{key}: {why}")]
    File {
        /// The section.
        section: &'static str,
        /// The key that names it.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// No answer.
    #[error("no Redis answers at {url}: {why}")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        why: String,
    },
    /// It answers, but wants other credentials.
    #[error("the Redis at {url} denies access: {why}")]
    Denied {
        /// The address.
        url: String,
        /// Its answer.
        why: String,
    },
    /// It is a replica.
    #[error("the Redis at {url} is a replica: give the address of the primary")]
    Replica {
        /// The address.
        url: String,
    },
    /// It is a node of a Redis Cluster.
    #[error(
        "the Redis at {url} is a node of a Redis Cluster: the address of a cluster begins with redis-cluster:// (docs/operations/cluster.md), except for `tallystone compact`, which needs a node (redis://)"
    )]
    Cluster {
        /// The address.
        url: String,
    },
    /// Its data has another number of partitions.
    #[error(
        "the data at {url} is in {found} partitions, but redis.partitions is {wanted}: it cannot be changed once there is data"
    )]
    Partitions {
        /// The address.
        url: String,
        /// The number found.
        found: u64,
        /// The number that the configuration has.
        wanted: u16,
    },
    /// Too old.
    #[error("Redis {found} is too old: 7.0 or later is needed")]
    Version {
        /// Its version.
        found: String,
    },
    /// Its data has another format.
    #[error(
        "the {what} in this Redis were written in format {found}, but this server reads format {read}: use the version that wrote them, or an empty Redis (for `tallystone dev`, another or an empty data folder)"
    )]
    Format {
        /// Which data: "queues" or "counters".
        what: &'static str,
        /// The format found.
        found: u64,
        /// The format that this program reads.
        read: u64,
    },
    /// It is not what it was.
    #[error(
        "the Redis at {url} is not what it was: a server has noticed that its data was deleted, or is older than it was. Give it its data back, or take it over as it is with `tallystone store accept`"
    )]
    DataLoss {
        /// The address.
        url: String,
    },
    /// It is another one than the configuration names.
    #[error(
        "the Redis at {url} has {found} under {key}, which is not in redis.store_ids: it is another Redis, or it has lost its data. Give it its data back; or, if you continue with what it has, write the marks of `tallystone store show` there, or remove the key"
    )]
    OtherStore {
        /// The address.
        url: String,
        /// The key of the mark.
        key: String,
        /// What it has.
        found: String,
    },
    /// It would lose acknowledged writes.
    #[error(
        "this Redis may lose acknowledged writes: {settings}. Set appendonly yes, appendfsync always, no-appendfsync-on-rewrite no and maxmemory-policy noeviction, or accept the loss with --allow-volatile"
    )]
    Volatile {
        /// The settings that make it so.
        settings: String,
    },
    /// It cannot wait until replicas have fsynced a write.
    #[error("this Redis is {found}: redis.replicas_fsync needs 7.2 or newer, or Valkey")]
    WaitAof {
        /// Its version.
        found: String,
    },
    /// It accepts writes although too few replicas are there for the wait behind them.
    #[error(
        "this Redis accepts writes that too few replicas can get: min-replicas-to-write is '{found}'. Set it to {replicas_min}, as redis.replicas_min, or accept what follows with --allow-volatile"
    )]
    Replicas {
        /// The setting.
        found: String,
        /// What the configuration of this process has.
        replicas_min: u32,
    },
    /// It would drop acknowledged writes at its next start.
    #[error(
        "this Redis would lose its data at its next start: it loads the append-only file as the user 'default', whose rights are '{rights}', and drops every transaction that this user may not execute. Write `user default off ~* &* +@all` in its ACL instead (off: no client can log in as it), or accept the loss with --allow-volatile"
    )]
    Unloadable {
        /// The rights of the default user.
        rights: String,
    },
}

impl ConnectError {
    /// The error for a Redis that did not answer, or answered with an error.
    pub fn unreachable(url: &str, error: LinkError) -> ConnectError {
        let url = url.to_owned();
        if error.is_data_loss {
            return ConnectError::DataLoss { url };
        }
        if is_of_a_replica(error.source.code()) {
            return ConnectError::Replica { url };
        }
        let is_denied = matches!(error.source.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED"))
            || error.source.kind() == ErrorKind::AuthenticationFailed;
        match is_denied {
            true => ConnectError::Denied { url, why: error.source.to_string() },
            false => ConnectError::Unreachable { url, why: Refusal::from(error).to_string() },
        }
    }
}

/// Waits until Redis has loaded its data. Refuses a Redis that is too old or, unless `allow_volatile`, may lose
/// acknowledged writes, by its settings or by the rights of the user with which it loads them. `url` is shown in errors:
/// pass it [`without_password`](tallystone_model::without_password).
pub async fn preflight(link: &Link, url: &str, allow_volatile: bool) -> Result<(), ConnectError> {
    let unreachable = |error: LinkError| ConnectError::unreachable(url, error);
    until_loaded(link, url).await.map_err(unreachable)?;
    let info = link.info("server").await.map_err(unreachable)?;
    let version: String = info.get("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < VERSION_MIN {
        return Err(ConnectError::Version { found: version });
    }
    if link.replicas().fsync && number < VERSION_OF_WAITAOF {
        return Err(ConnectError::WaitAof { found: version });
    }
    if link.replicas().fsync {
        // The right to it: without it, each write would be executed and then refused.
        link.call(redis::cmd("WAITAOF").arg(0).arg(0).arg(1)).await.map_err(unreachable)?;
    }
    let cluster = link.info("cluster").await.map_err(unreachable)?;
    if cluster.get("cluster_enabled") == Some(1) && !link.is_on_cluster() {
        return Err(ConnectError::Cluster { url: url.to_owned() });
    }
    if allow_volatile {
        return Ok(());
    }
    let mut found = BTreeMap::new();
    for name in WANTED.map(|(name, _)| name) {
        let reply = link.call(redis::cmd("CONFIG").arg("GET").arg(name)).await.map_err(unreachable)?;
        found.insert(name, field(&reply, name));
    }
    let wrong: Vec<String> = WANTED
        .iter()
        .filter(|(name, value)| found[name] != *value)
        .map(|(name, _)| format!("{name} is '{}'", found[name]))
        .collect();
    if !wrong.is_empty() {
        return Err(ConnectError::Volatile { settings: wrong.join(", ") });
    }
    let replicas_min = link.replicas().replicas_min;
    let reply = link.call(redis::cmd("CONFIG").arg("GET").arg(REPLICAS_MIN)).await.map_err(unreachable)?;
    let found = field(&reply, REPLICAS_MIN);
    if found.parse::<u32>().unwrap_or(0) < replicas_min {
        return Err(ConnectError::Replicas { found, replicas_min });
    }
    match loading(link).await.map_err(unreachable)? {
        Loading::Allowed => Ok(()),
        Loading::Denied { rights } => Err(ConnectError::Unloadable { rights }),
        Loading::Unknown { why } => {
            tracing::warn!(
                %why,
                "cannot check whether this Redis can load its data again: its ACL needs `user default … ~* &* +@all`. The right `+acl|getuser` makes the check possible"
            );
            Ok(())
        }
    }
}
