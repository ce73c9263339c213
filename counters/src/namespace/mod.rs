//! Namespaces (N1).
//!
//! What lives here: the configuration of a namespace (`config`), read also from the JSON of Netflix's article (`seed`), its thresholds
//! (`threshold`), and where its counters are stored (`placement`). What may not: the registry, which is in `redis/`.

mod config;
mod placement;
mod seed;
mod threshold;

pub use config::{
    Cardinality, CounterType, FUTURE_LIMIT_MS, MEDIUM_IDLE_MS, NamespaceConfig, PublishedTo, REGIONS_MAX, SHARDS,
    SKEW_MS,
};
pub(crate) use placement::Placement;
pub use seed::ARTICLE_EXAMPLE;
pub use threshold::Threshold;
