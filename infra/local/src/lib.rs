//! The real services as child processes, on 127.0.0.1, each with its data in one folder: Redis, Kafka and
//! Elasticsearch for `tallystone dev`, the demo, the bench and the tests, and Cassandra for the tests.
//!
//! What lives here: how each is started, found to answer, stopped and killed. What may not: what anyone says to them,
//! and anything that a server in production needs. `scripts/services.sh` installs Kafka and
//! Elasticsearch, and with `--tests` Cassandra.

mod cassandra;
mod child;
mod cluster;
mod elasticsearch;
mod error;
mod installed;
mod kafka;
mod lock;
mod module;
mod ports;
mod private;
mod private_cluster;
mod redis;
mod running;

pub use cassandra::{Cassandra, PrivateCassandra, PrivateCassandraOptions};
pub use cluster::{ClusterNode, make_cluster};
pub use elasticsearch::{Elasticsearch, PrivateElasticsearch, PrivateElasticsearchOptions};
pub use error::LocalError;
pub use installed::{duckdb, moto, redis_py, valkey_server};
pub use kafka::{Kafka, PrivateKafka, PrivateKafkaOptions};
pub use module::{MODULE_FILE, compact_module};
pub use ports::{free_port, free_port_except};
pub use private::private_dir;
pub use private_cluster::PrivateCluster;
pub use redis::{Fsync, Password, PrivateRedis, PrivateRedisOptions, REDIS_CONF, Redis};
pub use running::Running;
