//! Repairs of history.

use crate::calls::rpc;
use crate::client::Client;
use crate::error::Result;
use crate::history::IndexedMessage;
use crate::indexed_depth::Loss;
use crate::wire::wire_ms;
use std::time::Duration;
use tallystone_proto::history::v1 as wire;

impl Client {
    /// Replaces messages whose later transitions are lost, up to 1,000, and settles losses. Returns for each message
    /// whether history has it like this now: a message with the same version, or a later one, is not replaced.
    pub async fn repair_messages(&self, messages: Vec<IndexedMessage>, settled: Vec<Loss>) -> Result<Vec<bool>> {
        let request = wire::RepairMessagesRequest {
            messages: messages.into_iter().map(IndexedMessage::into_wire).collect(),
            settled: settled.into_iter().map(Loss::into_wire).collect(),
        };
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.history, repair_messages)).await?.response;
        Ok(response.repaired)
    }
}

impl IndexedMessage {
    fn into_wire(self) -> wire::IndexedMessage {
        wire::IndexedMessage {
            queue: self.queue,
            id: self.id,
            sequence: self.sequence,
            state: self.state.map_or(0, |state| state.to_wire().into()),
            gone: self.gone,
            version: self.version,
            priority: self.priority,
            metadata: self.metadata,
            attempts: self.attempts,
            fencing_token: self.fencing_token,
            worker: self.worker,
            reason: self.reason,
            enqueued_at_ms: wire_ms(self.enqueued_at_ms),
            state_since_ms: wire_ms(self.state_since_ms),
            changed_at_ms: wire_ms(self.changed_at_ms),
            due_ms: wire_ms(self.due_ms),
            coalesced: self.coalesced,
            payload: None,
            shard: self.shard,
            uncertain: false,
            repaired: false,
            result: self.result,
        }
    }
}
