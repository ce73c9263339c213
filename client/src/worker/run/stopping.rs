//! How a worker stops: it takes no more leases, lets its handlers finish, and sends the last results.

use super::{Reading, WorkerLoop};
use crate::lease::{Lease, LeaseRef};
use crate::worker::outcome::{Failure, Outcome, Success};
use crate::worker::settings::Settings;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

impl<F, Fut, T> WorkerLoop<'_, F>
where
    F: FnOnce(Lease) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Into<Success>,
{
    /// Begins to stop.
    pub(super) fn stop(&mut self) {
        tracing::debug!(worker = self.settings.name, running = self.handlers.len(), "stopping");
        self.grace_ends = Some(Instant::now() + self.settings.grace);
        // A server takes no credits back, but it drops those of a stream that its worker closes. The handlers go on, and another stream
        // takes their results and extensions. With release_on_close the server would release their leases.
        if self.credits > 0 && !self.settings.release_on_close {
            self.is_reopening = self.requests.take().is_some();
        }
    }

    /// A lease has arrived after the stop: another worker may run its message at once.
    pub(super) fn decline(&mut self, lease: LeaseRef) {
        self.settings.stats.leased.fetch_add(1, Relaxed);
        self.credits = self.credits.saturating_sub(1);
        // With release_on_close the server releases it at the end of the stream. Until the last credit is spent, a release would let the
        // server lease the message to this worker again, and each time one of its attempts would be lost.
        if self.settings.release_on_close && (self.credits > 0 || self.requests.is_none()) {
            return;
        }
        self.outgoing.releases.push_back(Failure::stopped().into_release(lease));
    }

    /// Stopping, and either nothing is left to do on the stream or the time for it has passed.
    pub(super) fn is_done(&self) -> bool {
        let Some(grace_ends) = self.grace_ends else { return false };
        let settled = self.outgoing.is_settled() && self.unanswered.is_settled();
        let ended = self.handlers.is_empty() && (settled || self.requests.is_none());
        // A handler that blocks its thread cannot be dropped; its lease expires.
        ended || grace_ends + self.settings.client.calls.call_timeout <= Instant::now()
    }

    /// Ends the stream, and sends the results that are still unconfirmed by unary calls.
    pub(super) async fn close(mut self) {
        self.requests = None;
        let deadline = Instant::now() + Duration::from_secs(1);
        if let Reading::Open(responses) = &mut self.reading {
            let mut late = Vec::new();
            while let Ok(Ok(Some(response))) = timeout_at(deadline, responses.message()).await {
                late.push(response);
            }
            for response in late {
                for lease in response.leases {
                    self.decline(Lease::from_wire(lease).lease_ref());
                }
                if self.on_results(response.completed, response.released, response.extended).is_err() {
                    break;
                }
            }
        }
        self.outgoing.send_again(&mut self.unanswered);
        let limit = self.settings.client.calls.call_timeout;
        let (completes, releases) = (self.outgoing.completes.len(), self.outgoing.releases.len());
        if timeout(limit, self.settle_unary()).await.is_err() {
            let worker = &self.settings.name;
            tracing::warn!(worker, completes, releases, "no server confirms the last results; their leases expire");
        }
    }

    async fn settle_unary(&mut self) {
        let Settings { client, queue, .. } = self.settings;
        for completes in Vec::from(std::mem::take(&mut self.outgoing.completes)).chunks(500) {
            match client.complete(queue, completes.to_vec()).await {
                Ok(results) => {
                    for (completion, result) in completes.iter().zip(results) {
                        self.settled(&completion.lease, result, Outcome::Completed);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, count = completes.len(), "results could not be sent; the leases expire")
                }
            }
        }
        for releases in Vec::from(std::mem::take(&mut self.outgoing.releases)).chunks(500) {
            match client.release(queue, releases.to_vec()).await {
                Ok(results) => {
                    for (release, result) in releases.iter().zip(results) {
                        self.settled(&release.lease, result, Outcome::Released);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, count = releases.len(), "leases could not be released; they expire")
                }
            }
        }
    }
}
