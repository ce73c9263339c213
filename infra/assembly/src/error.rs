//! Why a process could not be put together, or has failed.

use tallystone_counters::publish::RepublishError;
use tallystone_indexer::HistoryError;
use tallystone_link::ConnectError;
use tallystone_model::ConfigError;
use tallystone_serving::ServeError;

/// Why a process did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// A field of the configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Redis cannot be used.
    #[error(transparent)]
    Redis(#[from] ConnectError),
    /// The log of views cannot be opened.
    #[error(transparent)]
    Views(#[from] tallystone_views::log::OpenError),
    /// The log of views in Kafka cannot be opened.
    #[error("the log of views: {0}")]
    KafkaViews(#[from] tallystone_views::kafka::KafkaLogError),
    /// The history store cannot be opened.
    #[error("history: {0}")]
    History(String),
    /// The counters' store has refused a namespace.
    #[error(transparent)]
    Counters(#[from] tallystone_counters::Refusal),
    /// The counts of a namespace could not all be published.
    #[error("{namespace}: {why}")]
    Republish {
        /// The namespace.
        namespace: String,
        /// Why.
        why: RepublishError,
    },
    /// A port cannot be served, or no longer.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// One part of a process has ended by itself.
    #[error("{0} has ended unexpectedly")]
    Ended(&'static str),
}

impl From<HistoryError> for AssemblyError {
    fn from(error: HistoryError) -> Self {
        AssemblyError::History(error.to_string())
    }
}
