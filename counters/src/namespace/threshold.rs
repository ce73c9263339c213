//! The thresholds of a namespace (N16): counts whose passing is reported.

use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::rollup::COUNT_SOFT_MAX;
use serde::{Deserialize, Deserializer, Serialize};
use tallystone_serving::http::Int64;
use utoipa::ToSchema;

/// A count whose passing is reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Of the counters whose names begin with this; empty: of all.
    #[serde(default)]
    pub prefix: String,
    /// From -2^62 to 2^62.
    #[serde(deserialize_with = "integer")]
    pub count: i64,
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Int64::deserialize(deserializer).map(|count| count.0)
}

impl Threshold {
    /// The maximum number of thresholds of a namespace: each rollup compares all of them.
    pub const MAX: usize = 32;

    /// Checks the thresholds of a namespace.
    pub(super) fn check_all(thresholds: &[Threshold]) -> Result<(), Refusal> {
        if thresholds.len() > Threshold::MAX {
            let why = format!("has {}; must have at most {}", thresholds.len(), Threshold::MAX);
            return Err(Refusal::invalid("thresholds", why));
        }
        for (index, threshold) in thresholds.iter().enumerate() {
            CounterName::check_prefix("thresholds.prefix", &threshold.prefix)?;
            if threshold.count.unsigned_abs() > COUNT_SOFT_MAX.unsigned_abs() {
                let why = format!("is {}; must be from -2^62 to 2^62", threshold.count);
                return Err(Refusal::invalid("thresholds.count", why));
            }
            if thresholds[..index].contains(threshold) {
                let why = format!("has {} of '{}' twice", threshold.count, threshold.prefix);
                return Err(Refusal::invalid("thresholds", why));
            }
        }
        Ok(())
    }
}
