//! The calls of producers and workers, one method per RPC. The RPC Work is the [`Worker`](crate::Worker)'s.

use crate::calls::{Responded, rpc};
use crate::client::Client;
use crate::error::{Error, Items, Refused, Result};
use crate::lease::{Cancellation, Completion, Dequeue, Extended, Extension, Lease, Release, Transition};
use crate::message::{Enqueued, NewMessage};
use crate::wire::{from_wire, new_id, outcome};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;

impl Client {
    /// Adds messages, up to 1,000 and 4 MiB at once. A repeated message id answers the first result again.
    pub async fn enqueue(&self, queue: &str, messages: Vec<NewMessage>) -> Items<Enqueued> {
        let count = messages.len();
        let messages = messages.into_iter().map(NewMessage::into_wire).collect();
        let request = wire::EnqueueRequest { queue: queue.to_owned(), messages };
        let limit = self.calls.call_timeout;
        let enqueue = |server, request| {
            let (enqueues, servers) = (self.enqueues.on(server), self.calls.servers.clone());
            // As after a connection that could not be opened.
            let stopping = move || servers.replace_preferred(server, servers.next_of(server));
            async move { enqueues.call(request, limit, stopping).await }
        };
        let answer = self.calls.send(Duration::ZERO, request, enqueue).await?;
        items(
            count,
            answer,
            |response| response.results,
            |result| {
                let wire::Enqueued { id, enqueued_at_ms, queue_created } = outcome(result.outcome)?;
                Ok(Enqueued { id, enqueued_at_ms: from_wire(enqueued_at_ms), queue_created })
            },
        )
    }

    /// Leases the most urgent messages. Empty: no message became runnable within the wait.
    pub async fn dequeue(&self, dequeue: Dequeue) -> Result<Vec<Lease>> {
        let request = dequeue.into_wire();
        let wait = Duration::from_millis(from_wire(request.wait_ms));
        let leased = self.calls.send(wait, request, rpc!(self.queue, dequeue)).await?.response;
        Ok(leased.leases.into_iter().map(Lease::from_wire).collect())
    }

    /// Ends leases with success. The messages are completed, and keep their results; a coalesced one is pending again.
    pub async fn complete(&self, queue: &str, completions: Vec<Completion>) -> Items<Transition> {
        let count = completions.len();
        let leases = completions.into_iter().map(Completion::into_wire).collect();
        let request = wire::CompleteRequest { queue: queue.to_owned(), leases };
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.queue, complete)).await?;
        items(count, answer, |response| response.results, Transition::from_result)
    }

    /// Moves the end of leases to a time from now.
    pub async fn extend_lease(&self, queue: &str, extensions: Vec<Extension>) -> Items<Extended> {
        let count = extensions.len();
        let extensions = extensions.into_iter().map(Extension::into_wire).collect();
        let request = wire::ExtendLeaseRequest { queue: queue.to_owned(), extensions, request_id: new_id() };
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.queue, extend_lease)).await?;
        items(count, answer, |response| response.results, extension_result)
    }

    /// Gives leases back. The messages run again at once or after a delay; with no attempts left they are
    /// errored, and with another [verdict](crate::Verdict) they do not run again.
    pub async fn release(&self, queue: &str, releases: Vec<Release>) -> Items<Transition> {
        let count = releases.len();
        let releases = releases.into_iter().map(Release::into_wire).collect();
        let request = wire::ReleaseRequest { queue: queue.to_owned(), releases };
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.queue, release)).await?;
        items(count, answer, |response| response.results, Transition::from_result)
    }

    /// Cancels messages that have not ended. They never run again.
    pub async fn cancel(&self, queue: &str, cancellations: Vec<Cancellation>) -> Items<Transition> {
        let count = cancellations.len();
        let cancellations = cancellations.into_iter().map(Cancellation::into_wire).collect();
        let request = wire::CancelRequest { queue: queue.to_owned(), cancellations };
        let answer = self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.queue, cancel)).await?;
        items(count, answer, |response| response.results, Transition::from_result)
    }
}

/// One extension's result.
pub(crate) fn extension_result(result: wire::LeaseExtensionResult) -> Result<Extended, Refused> {
    let wire::LeaseExtended { lease_expires_at_ms } = outcome(result.outcome)?;
    Ok(Extended { lease_expires_at_ms: from_wire(lease_expires_at_ms) })
}

/// The results of a batch, which must be as many as its items.
pub(crate) fn items<R, W, T>(
    count: usize,
    answer: Responded<R>,
    results: impl Fn(R) -> Vec<W>,
    one: impl Fn(W) -> Result<T, Refused>,
) -> Items<T> {
    let results = results(answer.response);
    if results.len() != count {
        return Err(Error::Protocol(format!("{} results for {count} items", results.len())));
    }
    let unanswered = answer.unanswered;
    Ok(results.into_iter().map(|result| one(result).map_err(|refused| refused.of_call(unanswered))).collect())
}
