//! The counts of counters in all regions of their namespace (N12).

use super::{CounterService, touch_if_behind};
use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::names::{CounterName, NamespaceName, RegionName};
use crate::namespace::CounterType;
use crate::read::accurate;
use crate::refusal::Refusal;
use crate::regions::{GlobalCount, RegionRecord, global};

impl CounterService {
    /// The counts of counters of one namespace in all its regions, in their order, each or why it has none; and what the
    /// namespace promises of the part of this region. The parts of others are those that they published last.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: the namespace has no regions, or this server is in none of them.
    pub async fn get_global(
        &self,
        namespace: &NamespaceName,
        counters: &[CounterName],
    ) -> Result<(CounterType, Vec<Result<GlobalCount, Refusal>>), Refusal> {
        let open = self.directory.get(namespace).await?;
        let store = &open.store;
        let Some(region) = store.region() else {
            let why = match open.config.regions.is_empty() {
                true => "cannot be set: the namespace has no regions",
                false => "cannot be set: this server is in no region of the namespace (regions.name)",
            };
            return Err(Refusal::invalid("global", why));
        };
        let own: Vec<(i64, Checkpoint)> = match open.config.counter_type {
            CounterType::Accurate => accurate(store, store, counters).await?,
            CounterType::Eventual | CounterType::BestEffort => {
                store.read(counters).await?.into_iter().map(|checkpoint| (checkpoint.count, checkpoint)).collect()
            }
        };
        let others = store.known(counters).await?;
        for (counter, (_, checkpoint)) in counters.iter().zip(&own) {
            touch_if_behind(&open, counter, checkpoint.shown_exact_to_ms());
        }
        let counted = own.into_iter().zip(others).map(|((count, checkpoint), others)| {
            let own = RegionRecord { count, ..store.region_record(&checkpoint) };
            let mut others = others.into_iter();
            let of_region = |name: &RegionName| match name == region {
                true => (name.clone(), Some(own)),
                false => (name.clone(), others.next().flatten()),
            };
            global(&open.config.regions.iter().map(of_region).collect::<Vec<_>>())
        });
        Ok((open.config.counter_type, counted.collect()))
    }
}
