//! How a section of a configuration file is refused.

use std::ops::RangeInclusive;

/// A field of the configuration whose value cannot be used. Every section checks itself before a port opens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("configuration field {field}: {why}")]
pub struct ConfigError {
    /// The field with its section, as the file names it: `redis.url`, `queue_templates[1].config.lease_ms`.
    pub field: String,
    /// What is wrong, and which values are possible.
    pub why: String,
}

impl ConfigError {
    /// The error of one field.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> ConfigError {
        ConfigError { field: field.into(), why: why.into() }
    }

    /// Checks that the number of a field lies in a range.
    pub fn unless_within(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
        match range.contains(&value) {
            true => Ok(()),
            false => {
                Err(ConfigError::new(field, format!("is {value}; must be from {} to {}", range.start(), range.end())))
            }
        }
    }
}
