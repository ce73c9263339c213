//! Forwards the messages of librdkafka to our log.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WARN_EVERY: Duration = Duration::from_secs(10);

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

/// Logs one line of librdkafka. While a broker is unavailable librdkafka repeats an error for each attempt and broker, and
/// the failing call reports it as well, so all but the worst levels are logged as debug.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "kafka: {message}");
        }
        _ => tracing::debug!(facility, ?level, "kafka: {message}"),
    }
}

/// Logs an error of the client as a whole. The call that it affects returns its own error, which is a timeout where the
/// brokers refuse the client or it refuses them. That does not heal by itself, so it is a warning, about every ten seconds.
pub(crate) fn log_client_error(error: &KafkaError, reason: &str) {
    static WARNED_AT: Mutex<Option<Instant>> = Mutex::new(None);
    let is_refusal =
        matches!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL));
    let mut warned_at = WARNED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if is_refusal && warned_at.is_none_or(|at| at.elapsed() > WARN_EVERY) {
        *warned_at = Some(Instant::now());
        tracing::warn!(reason, "no connection to Kafka with this TLS and this user");
    } else {
        tracing::debug!(%error, reason, "kafka");
    }
}
