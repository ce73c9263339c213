//! `[regions]`, and what it means together with `[kafka]`.

use serde::{Deserialize, Serialize};
use tallystone_counters::RegionName;
use tallystone_kafka::KafkaOptions;
use tallystone_model::ConfigError;

/// The region of this installation, and its topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionOptions {
    /// The region.
    pub region: RegionName,
    /// The Kafka of this region; its topic is the one to publish to.
    pub kafka: KafkaOptions,
    /// The topics of other regions in the same Kafka.
    pub topics: Vec<String>,
}

/// `[regions]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegionsConfig {
    /// The region of this installation; `None`: it has none.
    pub name: Option<String>,
    /// The topic to which it publishes, in the Kafka of `[kafka]`.
    pub topic: String,
    /// The topics of the other regions in the same Kafka, as a mirror names them.
    pub topics: Vec<String>,
}

impl Default for RegionsConfig {
    fn default() -> Self {
        RegionsConfig { name: None, topic: "tallystone.regions".to_owned(), topics: Vec::new() }
    }
}

impl RegionsConfig {
    /// Checks the fields that need no Kafka; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.name.is_none() && !self.topics.is_empty() {
            return Err(ConfigError::new("regions.topics", "is set, but regions.name is not"));
        }
        self.region().map(drop)
    }

    /// The region of this installation.
    pub fn region(&self) -> Result<Option<RegionName>, ConfigError> {
        let name = self.name.clone().map(RegionName::parse).transpose();
        name.map_err(|refusal| ConfigError::new("regions.name", refusal.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_each_bad_field_is_named() {
        let config = RegionsConfig::default();
        assert_eq!((config.check(), config.region()), (Ok(()), Ok(None)));
        let of = |name: &str| RegionsConfig { name: Some(name.to_owned()), ..config.clone() };
        assert_eq!(of("eu-west.1").check(), Ok(()));
        for bad in ["", "e u", "eu/1", &"x".repeat(33)] {
            assert_eq!(of(bad).check().unwrap_err().field, "regions.name");
        }
        let topics = RegionsConfig { topics: vec!["t".to_owned()], ..config };
        assert_eq!(topics.check().unwrap_err().field, "regions.topics");
    }
}
