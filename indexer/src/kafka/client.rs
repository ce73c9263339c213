//! What librdkafka says, in our log.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

/// A client that only talks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        complain(&error, reason);
    }
}

/// A line of librdkafka. A broker that is away is said once per try and broker, and what depends on it says so too:
/// that is for who looks for it.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "kafka: {message}");
        }
        _ => tracing::debug!(facility, ?level, "kafka: {message}"),
    }
}

/// An error of the client as a whole; what it does to a call is the call's answer.
pub(super) fn complain(error: &KafkaError, reason: &str) {
    tracing::debug!(%error, reason, "kafka");
}
