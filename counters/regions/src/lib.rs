//! Counters that are spread over regions (N12): a region publishes its checkpoints to a compacted topic of Kafka, and merges those
//! that the other regions have published. It does not matter whether records come late, twice or in another order.
//!
//! What lives here: the configuration section (`config`); the content of a record (`record`); the process that has the lease, and
//! the namespaces that it serves (`leader`); what it publishes (`publisher`), how often (`pace`), but not twice (`sent`), and how
//! its counters catch up with other regions (`catch_up`); what it reads (`gather`) and merges (`merger`); `metrics`. What may not:
//! which of two records is later, the sum, and how a counter follows a clear (`tallystone_counters::regions`), and the store
//! (`tallystone_counters::redis`).

mod catch_up;
mod config;
mod gather;
mod leader;
mod merger;
mod metrics;
mod pace;
mod publisher;
mod record;
mod sent;

pub use config::{RegionOptions, RegionsConfig};

use leader::Leader;
use merger::Merger;
use publisher::Publisher;
use std::sync::Arc;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_kafka::KafkaConfigError;
use tokio_util::sync::CancellationToken;

/// Publishes the counters of a Redis to other regions, and merges theirs. Any number of processes may run it: one at a time works.
pub struct Regions {
    options: RegionOptions,
    namespaces: RedisNamespaces,
}

impl Regions {
    /// Of the namespaces of a Redis.
    pub fn new(options: RegionOptions, namespaces: RedisNamespaces) -> Regions {
        metrics::describe(&options.region);
        Regions { options, namespaces }
    }

    /// Runs until the token is cancelled.
    ///
    /// # Errors
    /// An option of Kafka cannot be used.
    pub async fn run(self, stopping: CancellationToken) -> Result<(), KafkaConfigError> {
        let Regions { options, namespaces } = self;
        let options = Arc::new(options);
        let leader = Leader::new(namespaces.clone());
        let publisher = Publisher::new(&options, leader.watch())?;
        let merger = Merger::new(options, namespaces, leader.watch());
        let work = async { tokio::join!(leader.run(), publisher.run(), merger.run()) };
        stopping.run_until_cancelled(work).await;
        Ok(())
    }
}
