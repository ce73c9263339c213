//! The Redis, or the Redis Cluster, that `tallystone dev` starts.

use crate::error::CliError;
use crate::serving::cannot_serve;
use std::path::{Path, PathBuf};
use tallystone_local::{
    LocalError, MODULE_FILE, Password, PrivateCluster, PrivateRedis, PrivateRedisOptions, REDIS_CONF, compact_module,
};

/// Where the data is.
pub(super) enum PrivateStore {
    One(PrivateRedis),
    Cluster(PrivateCluster),
}

impl PrivateStore {
    /// Starts it, with the module of the compact store if that is there; returns the module, too.
    pub(super) async fn start(
        data_dir: &Path,
        port: Option<u16>,
        is_cluster: bool,
    ) -> Result<(PrivateStore, Option<PathBuf>), CliError> {
        let module = compact_module().map_err(CliError::usage)?;
        let with_module = |options: PrivateRedisOptions| match &module {
            Some(module) => options.load_module(module),
            None => options,
        };
        let started = match is_cluster {
            true => PrivateCluster::start(data_dir, with_module).await.map(PrivateStore::Cluster),
            false => {
                let password = Password::New;
                let options = PrivateRedisOptions { port, password, ..PrivateRedisOptions::new(data_dir) };
                PrivateRedis::start(with_module(options)).await.map(PrivateStore::One)
            }
        };
        match started {
            Ok(store) => Ok((store, module)),
            Err(error @ LocalError::ModuleNeeded { .. }) => Err(CliError::usage(error).hint(format!(
                "put {MODULE_FILE} into the folder of this program, or set TALLYSTONE_COMPACT_MODULE to its path; \
                 `cargo build --release -p tallystone-compact-module` builds it"
            ))),
            Err(error) => Err(cannot_serve(&error)),
        }
    }

    /// Its address, with the password.
    pub(super) fn url(&self) -> String {
        match self {
            PrivateStore::One(redis) => redis.url(),
            PrivateStore::Cluster(cluster) => cluster.url(),
        }
    }

    /// The same without the password.
    pub(super) fn shown_url(&self) -> String {
        match self {
            PrivateStore::One(redis) => redis.shown_url(),
            PrivateStore::Cluster(cluster) => cluster.shown_url(),
        }
    }

    /// The file with the password.
    pub(super) fn conf(&self, data_dir: &Path) -> PathBuf {
        match self {
            PrivateStore::One(_) => data_dir.join(REDIS_CONF),
            PrivateStore::Cluster(cluster) => cluster.conf(),
        }
    }

    /// Waits until it has ended for good, and returns what to say of that. A node of a cluster that ends starts again.
    pub(super) async fn ended(&self) -> CliError {
        match self {
            PrivateStore::One(redis) => {
                redis.ended().await;
                CliError::unavailable("the private Redis has ended: was it killed, or out of memory?")
                    .hint("every acknowledged write is on the disk; start `tallystone dev` again")
            }
            PrivateStore::Cluster(cluster) => {
                let error = cluster.keep_up().await;
                CliError::unavailable(format!("a node of the private Redis Cluster cannot start again: {error}"))
                    .hint("every acknowledged write is on the disk; start `tallystone dev --cluster` again")
            }
        }
    }

    pub(super) async fn stop(self) {
        match self {
            PrivateStore::One(redis) => redis.stop().await,
            PrivateStore::Cluster(cluster) => cluster.stop().await,
        }
    }
}
