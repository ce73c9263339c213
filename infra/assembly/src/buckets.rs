//! The buckets of all histograms, the same in every process: `dev` has the parts of all.

use tallystone_serving::Buckets;

pub(crate) fn buckets() -> Vec<Buckets> {
    let of_worker = tallystone_workers::BUCKETS.iter().map(|(metric, bounds)| Buckets { metric, bounds });
    tallystone_server::BUCKETS.iter().chain(tallystone_indexer::kafka::BUCKETS).copied().chain(of_worker).collect()
}
