//! Counts of messages as history knows them, and the wait for history. Times are Unix milliseconds by the store's clock;
//! ranges include their start and exclude their end.

use crate::calls::{LIMIT_MAX, rpc};
use crate::client::Client;
use crate::error::Result;
use crate::history::Watermark;
use crate::inspect::Depth;
use crate::wire::{from_wire, wire_count, wire_ms};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_proto::history::v1 as wire;
use tokio::time::Instant;

/// Pause between two polls of the watermark.
const CATCH_UP_POLL: Duration = Duration::from_millis(50);

/// One queue, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues {
    /// This queue.
    One(String),
    /// The queues whose names begin so; empty: all queues.
    WithPrefix(String),
}

/// By what counted messages are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// By their queue.
    Queue,
    /// By their value of this metadata key. Messages without it are in no group.
    Key(String),
}

/// The arguments of [`Client::indexed_depth`]. A message must match every field; an empty or zero field matches any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepthQuery {
    /// Of these queues.
    pub queues: Queues,
    /// Its metadata has every pair; up to 4.
    pub metadata: BTreeMap<String, String>,
    /// Its priority is not below this.
    pub priority_min: Option<i64>,
    /// Its priority is not above this.
    pub priority_max: Option<i64>,
    /// Enqueued at this time or later.
    pub enqueued_from_ms: u64,
    /// Enqueued before this time.
    pub enqueued_to_ms: u64,
    /// Also counts by groups.
    pub group_by: Option<GroupBy>,
    /// Groups per page, up to 1,000; 0: 100.
    pub page_size: u32,
    /// The token of the page of groups, from the same query; empty: the first page.
    pub page_token: String,
}

impl DepthQuery {
    /// All messages of these queues.
    pub fn of(queues: Queues) -> DepthQuery {
        DepthQuery {
            queues,
            metadata: BTreeMap::new(),
            priority_min: None,
            priority_max: None,
            enqueued_from_ms: 0,
            enqueued_to_ms: 0,
            group_by: None,
            page_size: 0,
            page_token: String::new(),
        }
    }
}

/// The messages of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DepthGroup {
    /// The value of the metadata key, or the queue's name.
    pub value: String,
    /// By state.
    pub depth: Depth,
}

/// Transitions of a queue shard that are in no history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The queue.
    pub queue: String,
    /// Its shard.
    pub shard: u32,
    /// All of them happened at this time or earlier.
    pub lost_to_ms: u64,
}

/// The answer of [`Client::indexed_depth`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexedDepth {
    /// By state.
    pub depth: Depth,
    /// Those of them that may have changed since, or be gone: transitions of their queue were lost.
    pub uncertain: Depth,
    /// The lost transitions that no repair has settled.
    pub losses: Vec<Loss>,
    /// A page of groups, in the order of their values.
    pub groups: Vec<DepthGroup>,
    /// The token of the next page of groups; empty: this is the last page.
    pub next_page_token: String,
    /// How current the answer is.
    pub watermark: Watermark,
}

impl Client {
    /// Counts messages by state, as far as history is indexed.
    pub async fn indexed_depth(&self, query: DepthQuery) -> Result<IndexedDepth> {
        let (queue, queue_prefix) = match query.queues {
            Queues::One(queue) => (queue, None),
            Queues::WithPrefix(prefix) => (String::new(), Some(prefix)),
        };
        let (group_by_key, group_by_queue) = match query.group_by {
            None => (String::new(), false),
            Some(GroupBy::Queue) => (String::new(), true),
            Some(GroupBy::Key(key)) => (key, false),
        };
        let request = wire::IndexedDepthRequest {
            queue,
            metadata: query.metadata,
            queue_prefix,
            priority_min: query.priority_min,
            priority_max: query.priority_max,
            enqueued_from_ms: wire_ms(query.enqueued_from_ms),
            enqueued_to_ms: wire_ms(query.enqueued_to_ms),
            group_by_key,
            group_by_queue,
            page_size: wire_count(query.page_size),
            page_token: query.page_token,
        };
        let depth = self.calls.read(Duration::ZERO, request, rpc!(self.history, indexed_depth)).await?.response;
        let group = |group: wire::DepthGroup| DepthGroup {
            value: group.value,
            depth: Depth::from_wire(group.counts.unwrap_or_default()),
        };
        Ok(IndexedDepth {
            depth: Depth::from_wire(depth.counts.unwrap_or_default()),
            uncertain: Depth::from_wire(depth.uncertain.unwrap_or_default()),
            losses: depth.losses.into_iter().map(Loss::from_wire).collect(),
            groups: depth.groups.into_iter().map(group).collect(),
            next_page_token: depth.next_page_token,
            watermark: Watermark::from_wire(depth.watermark),
        })
    }

    /// Waits until history has everything that had happened when this was called. `false`: it did not within this time.
    pub async fn history_caught_up(&self, within: Duration) -> Result<bool> {
        let give_up_at = Instant::now() + within.min(LIMIT_MAX);
        let mut target_ms = None;
        loop {
            // The watermark covers all queues, so the name does not matter.
            let watermark = self.indexed_depth(DepthQuery::of(Queues::One("any".to_owned()))).await?.watermark;
            if let (Some(indexed_to_ms), Some(now_ms)) = (watermark.indexed_to_ms, watermark.answered_at_ms())
                && indexed_to_ms >= *target_ms.get_or_insert(now_ms)
            {
                return Ok(true);
            }
            if Instant::now() >= give_up_at {
                return Ok(false);
            }
            tokio::time::sleep(CATCH_UP_POLL).await;
        }
    }
}

impl Loss {
    fn from_wire(loss: wire::Loss) -> Self {
        Loss { queue: loss.queue, shard: loss.shard, lost_to_ms: from_wire(loss.lost_to_ms) }
    }

    pub(crate) fn into_wire(self) -> wire::Loss {
        wire::Loss { queue: self.queue, shard: self.shard, lost_to_ms: wire_ms(self.lost_to_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_for_history_may_be_as_long_as_its_type_allows() {
        let builder = Client::builder("http://127.0.0.1:1").retry_for(Duration::ZERO);
        let client = builder.connect_lazy().expect("an address");
        // No server listens there.
        let error = client.history_caught_up(Duration::MAX).await.expect_err("no answer");
        assert!(error.is_unavailable(), "{error}");
    }
}
