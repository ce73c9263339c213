//! Notices that the topic was deleted and created again while it is read. librdkafka continues at the old offset then,
//! and skips what the new topic has before it.

use super::metrics::Metrics;
use std::time::Duration;
use tallystone_kafka::GroupReader;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How often one position is verified. A topic has all its partitions from the same creation, so one is enough.
const VERIFY_EVERY: Duration = Duration::from_secs(2);

/// Verifies the positions up to which the topic was read, one after the other.
pub(super) struct TopicCheck {
    /// The partition that was verified last.
    verified: i32,
    /// The verification in progress. It returns whether the topic is the same.
    verification: Option<oneshot::Receiver<bool>>,
    next_at: Instant,
}

impl TopicCheck {
    pub(super) fn new() -> TopicCheck {
        TopicCheck { verified: -1, verification: None, next_at: Instant::now() + VERIFY_EVERY }
    }

    /// Waits for the next step, a verification's begin or end, and takes it. Returns whether the topic was created again.
    /// Cancel-safe.
    pub(super) async fn advance(&mut self, reader: &GroupReader<Metrics>) -> bool {
        if let Some(verification) = self.verification.as_mut() {
            let is_same = verification.await.unwrap_or(true);
            self.verification = None;
            return !is_same;
        }
        sleep_until(self.next_at).await;
        self.next_at = Instant::now() + VERIFY_EVERY;
        if let Some((partition, verification)) = reader.verify_after(self.verified) {
            (self.verified, self.verification) = (partition, Some(verification));
        }
        false
    }
}
