//! Encodes events, losses and watermarks.

use crate::fold::{wire_cause, wire_state};
use prost::Message;
use tallystone_model::{Loss, Recorded};
use tallystone_proto::event::v1 as wire;

/// Encodes events. It reuses its buffers from one event to the next.
#[derive(Default)]
pub struct Encoder {
    wire: wire::Event,
    key: String,
    value: Vec<u8>,
}

impl Encoder {
    /// The record's key, which sends all events of a message to one partition, and its value. An event always has the
    /// same bytes.
    pub fn encode(&mut self, recorded: &Recorded) -> (&[u8], &[u8]) {
        let (queue, event, wire) = (recorded.shard.queue.as_str(), &recorded.event, &mut self.wire);
        for (text, to) in [
            (queue, &mut wire.queue),
            (event.id.as_str(), &mut wire.id),
            (&event.worker, &mut wire.worker),
            (&event.reason, &mut wire.reason),
            (&event.last_reason, &mut wire.last_reason),
        ] {
            to.clear();
            to.push_str(text);
        }
        wire.shard = recorded.shard.number.into();
        wire.offset = recorded.offset;
        wire.sequence = event.sequence;
        wire.version = event.version;
        wire.from_state = wire_state(event.from).into();
        wire.to_state = wire_state(event.to).into();
        wire.cause = wire_cause(event.by).into();
        wire.at_ms = event.at_ms as i64;
        wire.from_state_since_ms = event.from_since_ms as i64;
        wire.state_since_ms = event.since_ms as i64;
        wire.enqueued_at_ms = event.enqueued_at_ms as i64;
        wire.priority = event.priority;
        wire.metadata.clone_from(event.metadata.pairs());
        wire.attempts = event.attempts;
        wire.fencing_token = event.fencing_token;
        wire.due_ms = event.due_ms as i64;
        wire.coalesced = event.coalesced;
        wire.payload.clone_from(&event.payload);
        wire.result.clone_from(&event.result);
        self.value.clear();
        wire.encode(&mut self.value).expect("a vector grows");
        self.key.clear();
        self.key.extend([queue, "/", event.id.as_str()]);
        (self.key.as_bytes(), &self.value)
    }
}

/// The value of one event's record.
pub fn encode(recorded: &Recorded) -> Vec<u8> {
    Encoder::default().encode(recorded).1.to_vec()
}

/// The value of a loss's record.
pub fn encode_loss(loss: &Loss) -> Vec<u8> {
    let (queue, shard) = (loss.shard.queue.to_string(), loss.shard.number.into());
    wire::Loss { queue, shard, lost_to_ms: loss.lost_to_ms as i64 }.encode_to_vec()
}

/// The value of a watermark's record; `up_to_ms` is Unix ms.
pub fn encode_watermark(up_to_ms: u64) -> Vec<u8> {
    wire::Watermark { up_to_ms: up_to_ms as i64 }.encode_to_vec()
}
