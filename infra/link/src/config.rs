//! `[redis]`: which Redis, and how durable it must be.

use crate::access::RedisAccess;
use crate::address::Address;
use crate::room::{Reserve, Room};
use crate::{Clock, ConnectError, ReplicaWait};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tallystone_model::ConfigError;
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;

/// `[redis]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://HOST:PORT/DATABASE`, or `redis-sentinel://HOST:PORT,HOST:PORT/DATABASE#NAME`: the primary that these
    /// Sentinels call NAME, or `redis-cluster://HOST:PORT,HOST:PORT`: some nodes of a Redis Cluster. `rediss` instead of `redis`:
    /// with TLS.
    pub url: String,
    /// Into how many partitions the data on a Redis Cluster is divided (Q17); `None`: [`RedisConfig::PARTITIONS`]. It cannot be
    /// changed once there are queues.
    pub partitions: Option<u16>,
    /// The ACL user; `None`: that of the address, or the default user.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The ACL user of the Sentinels; `None`: the default user.
    pub sentinel_user: Option<String>,
    /// The file with the password of the Sentinels.
    pub sentinel_password_file: Option<PathBuf>,
    /// The CAs of a `rediss://` address, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show to Redis, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The identity marks that the data may have (X7), as `tallystone store show` prints them; empty: any, and a store without
    /// one gets it.
    pub store_ids: Vec<String>,
    /// Accept a Redis that may lose acknowledged writes (Q16).
    pub allow_volatile: bool,
    /// Replicas that must have each write before it is acknowledged (Q16); 0: none.
    pub replicas_min: u32,
    /// How long to wait for them.
    pub replica_wait_ms: u64,
    /// They must have fsynced it, too.
    pub replicas_fsync: bool,
    /// Calls are refused where Redis's clock and this machine's differ by more (X6); 0: they are not compared.
    pub clock_skew_max_ms: u32,
    /// The folder of Redis's data, if it is on this machine; `None`: its disk is not watched.
    pub data_dir: Option<PathBuf>,
    /// The reserve: while fewer bytes are free on the disk of that folder, calls that add data are refused (S1).
    pub disk_free_min_bytes: u64,
    /// The reserve as a share of the disk, in percent; the larger of both counts.
    pub disk_free_min_percent: u32,
}

impl Default for RedisConfig {
    fn default() -> Self {
        RedisConfig {
            url: "redis://127.0.0.1:6379".to_owned(),
            partitions: None,
            user: None,
            password_file: None,
            sentinel_user: None,
            sentinel_password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            store_ids: Vec::new(),
            allow_volatile: false,
            replicas_min: 0,
            replica_wait_ms: 1_000,
            replicas_fsync: false,
            clock_skew_max_ms: CLOCK_SKEW_MAX_MS,
            data_dir: None,
            disk_free_min_bytes: 1 << 30,
            disk_free_min_percent: 5,
        }
    }
}

impl RedisConfig {
    /// The partitions of a store on a Redis Cluster, unless the configuration says otherwise.
    pub const PARTITIONS: u16 = 8;

    /// How many partitions the data has; 1: it is not on a Redis Cluster.
    pub fn partition_count(&self) -> u16 {
        match Address::parse(&self.url) {
            Ok(Address::Cluster { .. }) => self.partitions.unwrap_or(Self::PARTITIONS),
            _ => 1,
        }
    }

    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Err(why) = Address::parse(&self.url) {
            // The value is not quoted: a password may be anywhere in what is not an address.
            let why = format!(
                "{why}; must be like redis://127.0.0.1:6379, redis-sentinel://a:26379,b:26379/0#NAME or redis-cluster://a:6379,b:6379"
            );
            return Err(ConfigError::new("redis.url", why));
        }
        self.access().check("redis", &self.url)?;
        if let Some(partitions) = self.partitions {
            if !matches!(Address::parse(&self.url), Ok(Address::Cluster { .. })) {
                let why = "is set, but redis.url does not begin with redis-cluster:// or rediss-cluster://";
                return Err(ConfigError::new("redis.partitions", why));
            }
            ConfigError::unless_within("redis.partitions", partitions.into(), 2..=256)?;
        }
        if self.allow_volatile && !self.store_ids.is_empty() {
            let why =
                "is set, but so is redis.allow_volatile: such a Redis gets a new mark whenever it has lost its data";
            return Err(ConfigError::new("redis.store_ids", why));
        }
        ConfigError::unless_within("redis.replicas_min", u64::from(self.replicas_min), 0..=16)?;
        ConfigError::unless_within("redis.replica_wait_ms", self.replica_wait_ms, 1..=60_000)?;
        if self.replicas_fsync && self.replicas_min == 0 {
            return Err(ConfigError::new("redis.replicas_fsync", "is set, but redis.replicas_min is 0"));
        }
        ConfigError::unless_within("redis.disk_free_min_bytes", self.disk_free_min_bytes, 0..=1 << 50)?;
        ConfigError::unless_within("redis.disk_free_min_percent", self.disk_free_min_percent.into(), 0..=90)?;
        // Less than what calls of a healthy Redis wait now and then would refuse calls for no reason.
        match self.clock_skew_max_ms {
            0 | 100..=3_600_000 => Ok(()),
            other => {
                let why = format!("is {other}; must be from 100 to 3600000, or 0");
                Err(ConfigError::new("redis.clock_skew_max_ms", why))
            }
        }
    }

    /// The user and the files with which Redis is reached.
    pub fn access(&self) -> RedisAccess {
        let RedisConfig { user, password_file, sentinel_user, sentinel_password_file, .. } = self.clone();
        let RedisConfig { ca_file, cert_file, key_file, .. } = self.clone();
        RedisAccess { user, password_file, sentinel_user, sentinel_password_file, ca_file, cert_file, key_file }
    }

    /// The clock of the scripts. `what` names the data: "queues" or "counters".
    pub fn clock(&self, what: &'static str) -> Clock {
        Clock::redis(what, self.clock_skew_max_ms)
    }

    /// The room on the disk of Redis. `what` names the data: "queues" or "counters".
    ///
    /// # Errors
    /// [`ConnectError::File`]: `data_dir` cannot be used.
    pub fn room(&self, what: &'static str) -> Result<Room, ConnectError> {
        let reserve = Reserve { bytes: self.disk_free_min_bytes, percent: self.disk_free_min_percent };
        self.data_dir.as_deref().map_or(Ok(Room::default()), |folder| Room::of_folder(what, folder, reserve))
    }

    /// The replicas that each write waits for.
    pub fn replicas(&self) -> ReplicaWait {
        ReplicaWait { replicas_min: self.replicas_min, wait_ms: self.replica_wait_ms, fsync: self.replicas_fsync }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(RedisConfig::default().check(), Ok(()));
        for (field, config) in [
            ("redis.url", RedisConfig { url: "http://x".to_owned(), ..RedisConfig::default() }),
            ("redis.partitions", RedisConfig { partitions: Some(8), ..RedisConfig::default() }),
            (
                "redis.partitions",
                RedisConfig { partitions: Some(1), url: "redis-cluster://h".to_owned(), ..RedisConfig::default() },
            ),
            (
                "redis.store_ids",
                RedisConfig { store_ids: vec!["x".to_owned()], allow_volatile: true, ..RedisConfig::default() },
            ),
            ("redis.replicas_min", RedisConfig { replicas_min: 17, ..RedisConfig::default() }),
            ("redis.replica_wait_ms", RedisConfig { replica_wait_ms: 0, ..RedisConfig::default() }),
            ("redis.replicas_fsync", RedisConfig { replicas_fsync: true, ..RedisConfig::default() }),
            ("redis.disk_free_min_bytes", RedisConfig { disk_free_min_bytes: u64::MAX, ..RedisConfig::default() }),
            ("redis.disk_free_min_percent", RedisConfig { disk_free_min_percent: 91, ..RedisConfig::default() }),
            ("redis.clock_skew_max_ms", RedisConfig { clock_skew_max_ms: 99, ..RedisConfig::default() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
