//! Why options of a Kafka client cannot be used.

use rdkafka::error::KafkaError;

/// Why the options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaConfigError {
    /// The programs set this property themselves: exactly-once indexing depends on it, or it has its own setting.
    #[error("the Kafka property {0} cannot be changed: the programs set it themselves")]
    Fixed(String),
    /// librdkafka does not know a property, or refuses its value. The value is not shown, because it may be a password.
    #[error("the Kafka client cannot be set up: {0}")]
    Refused(String),
    /// A field is out of range.
    #[error("{field}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with its value.
        why: String,
    },
}

impl From<KafkaError> for KafkaConfigError {
    /// Why a client could not be created.
    fn from(error: KafkaError) -> Self {
        KafkaConfigError::Refused(match error {
            // The library's own text quotes the value, and so may librdkafka's description.
            KafkaError::ClientConfig(_, why, name, value) => {
                let why = if value.is_empty() { why } else { why.replace(&value, "***") };
                format!("{name}: {why}")
            }
            other => other.to_string(),
        })
    }
}
