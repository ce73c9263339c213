//! Forwards the messages of librdkafka to our log.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

/// The context of a client that needs no callbacks: it only logs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogContext;

impl ClientContext for LogContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }
}

/// Logs one line of librdkafka. While a broker is away librdkafka repeats an error for each attempt and broker, and
/// the failing call reports it as well, so all but the worst levels are logged as debug.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "kafka: {message}");
        }
        _ => tracing::debug!(facility, ?level, "kafka: {message}"),
    }
}

/// Logs an error of the client as a whole. The call that it affects returns its own error.
pub(crate) fn log_client_error(error: &KafkaError, reason: &str) {
    tracing::debug!(%error, reason, "kafka");
}
