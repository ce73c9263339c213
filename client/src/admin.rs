//! The operator's calls, one method per RPC.

use crate::calls::rpc;
use crate::client::Client;
use crate::config::{QueueConfig, QueueInfo};
use crate::error::{Applied, Error, Items, Refused, Result};
use crate::inspect::{Ages, CheckStep, Depth, Explanation, Message, MessagePatch, Page, Purged, QueueSummary};
use crate::lease::Transition;
use crate::message::{Filter, State};
use crate::queue::items;
use crate::wire::{from_wire, wire_count};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;

impl Client {
    /// Creates a queue. The same name with the same configuration returns the existing queue; with another configuration
    /// the call is refused (`QUEUE_EXISTS`).
    pub async fn create_queue(&self, name: &str, config: QueueConfig) -> Result<QueueInfo> {
        let request = wire::CreateQueueRequest { name: name.to_owned(), config: Some(config.into_wire()) };
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, create_queue)).await?.response;
        Ok(QueueInfo::from_wire(response.queue.unwrap_or_default()))
    }

    /// Changes the fields that `config` sets. Every server applies the change at once.
    pub async fn update_queue(&self, name: &str, config: QueueConfig) -> Result<QueueInfo> {
        let update_mask = Some(prost_types::FieldMask { paths: config.field_names() });
        let request = wire::UpdateQueueRequest { name: name.to_owned(), config: Some(config.into_wire()), update_mask };
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, update_queue)).await?.response;
        Ok(QueueInfo::from_wire(response.queue.unwrap_or_default()))
    }

    /// Reads a queue's configuration.
    pub async fn get_queue(&self, name: &str) -> Result<QueueInfo> {
        let request = wire::GetQueueRequest { name: name.to_owned() };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, get_queue)).await?.response;
        Ok(QueueInfo::from_wire(response.queue.unwrap_or_default()))
    }

    /// Lists queues whose names begin with `prefix`, by name. `page_size` 0: the server's default. The first page has the
    /// empty token.
    pub async fn list_queues(&self, prefix: &str, page_size: u32, page_token: &str) -> Result<Page<QueueSummary>> {
        let (prefix, page_token) = (prefix.to_owned(), page_token.to_owned());
        let request = wire::ListQueuesRequest { prefix, page_size: wire_count(page_size), page_token };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, list_queues)).await?.response;
        let summary = |summary: wire::QueueSummary| QueueSummary {
            queue: QueueInfo::from_wire(summary.queue.unwrap_or_default()),
            depth: Depth::from_wire(summary.depth.unwrap_or_default()),
            ages: Ages::from_wire(summary.ages.unwrap_or_default()),
        };
        let items = response.queues.into_iter().map(summary).collect();
        Ok(Page { items, next_page_token: response.next_page_token })
    }

    /// Deletes a queue. One with live messages is refused (`QUEUE_NOT_EMPTY`) unless forced, which purges it first.
    pub async fn delete_queue(&self, name: &str, force: bool) -> Result<()> {
        let request = wire::DeleteQueueRequest { name: name.to_owned(), force };
        match self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, delete_queue)).await {
            // An earlier attempt deleted it, and its answer was lost.
            Err(Error::Refused(Refused { reason, applied: Applied::Unknown, .. })) if reason == "QUEUE_NOT_FOUND" => {
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Cancels and removes messages, as many as the [call timeout](crate::ClientBuilder::call_timeout) allows. Call again
    /// while [`Purged::more`] is set.
    pub async fn purge_queue(&self, name: &str, include_running: bool) -> Result<Purged> {
        let request = wire::PurgeQueueRequest { name: name.to_owned(), include_running };
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, purge_queue)).await?.response;
        Ok(Purged { purged: from_wire(response.purged), more: response.more })
    }

    /// Counts messages by state, exactly: of the whole queue, or of the messages that pass the filter.
    pub async fn depth(&self, queue: &str, filter: Option<Filter>) -> Result<Depth> {
        let request = wire::DepthRequest { queue: queue.to_owned(), filter: filter.map(Filter::into_wire) };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, depth)).await?.response;
        Ok(Depth::from_wire(response.counts.unwrap_or_default()))
    }

    /// Reads the ages of the oldest runnable message and of the oldest lease of a queue.
    pub async fn ages(&self, queue: &str) -> Result<Ages> {
        let request = wire::DepthRequest { queue: queue.to_owned(), filter: None };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, depth)).await?.response;
        Ok(Ages::from_wire(response.ages.unwrap_or_default()))
    }

    /// Reads one message.
    pub async fn get_message(&self, queue: &str, id: &str) -> Result<Message> {
        let request = wire::GetMessageRequest { queue: queue.to_owned(), id: id.to_owned() };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, get_message)).await?.response;
        Message::from_wire(response.message.unwrap_or_default())
    }

    /// Lists the messages of one state: pending ones most urgent first, the others by due time. `page_size` 0: the
    /// server's default. The first page has the empty token.
    pub async fn list_messages(
        &self,
        queue: &str,
        state: State,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<Message>> {
        let request = wire::ListMessagesRequest {
            queue: queue.to_owned(),
            state: state.to_wire().into(),
            page_size: wire_count(page_size),
            page_token: page_token.to_owned(),
        };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, list_messages)).await?.response;
        let items = response.messages.into_iter().map(Message::from_wire).collect::<Result<_>>()?;
        Ok(Page { items, next_page_token: response.next_page_token })
    }

    /// Changes the priority or the visibility of a message that has not ended.
    pub async fn update_message(&self, queue: &str, id: &str, patch: MessagePatch) -> Result<Transition> {
        let request = patch.into_wire(queue, id);
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, update_message)).await?.response;
        Ok(Transition::from_wire(&response.transition.unwrap_or_default())?)
    }

    /// Returns errored and canceled messages to pending, with all their attempts.
    pub async fn redrive(&self, queue: &str, ids: Vec<String>) -> Items<Transition> {
        let count = ids.len();
        let request = wire::RedriveRequest { queue: queue.to_owned(), ids };
        let answer = self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, redrive)).await?;
        items(count, answer, |response| response.results, Transition::from_result)
    }

    /// Says why a message is not running.
    pub async fn explain(&self, queue: &str, id: &str) -> Result<Explanation> {
        let request = wire::ExplainRequest { queue: queue.to_owned(), id: id.to_owned() };
        Explanation::from_wire(self.calls.read(Duration::ZERO, request, rpc!(self.admin, explain)).await?.response)
    }

    /// Checks the queue's invariants, one bounded step per call. Start with the empty cursor, and call again with the
    /// returned one until it is empty.
    pub async fn check_queue(&self, queue: &str, cursor: &str) -> Result<CheckStep> {
        let request = wire::CheckQueueRequest { queue: queue.to_owned(), cursor: cursor.to_owned() };
        Ok(CheckStep::from_wire(
            self.calls.read(Duration::ZERO, request, rpc!(self.admin, check_queue)).await?.response,
        ))
    }
}
