//! Messages and leases, from their heads and bodies.

use super::attempts::last_attempts;
use super::content::Fixed;
use super::head::Head;
use super::id::decode_id;
use super::reader::{Reader, Unreadable};
use bytes::Bytes;
use tallystone_model::message::{Lease, Message};
use tallystone_model::{MessageId, QueueConfig, State};

/// Where `fixed` begins in a body.
const FIXED_IN_BODY: usize = 13;

/// The payload of a body, without copying it.
fn payload_of(body: &Bytes) -> Result<Bytes, Unreadable> {
    let length_at = FIXED_IN_BODY + 8;
    let length = Reader(body.get(length_at..).ok_or(Unreadable("body"))?).number(2)? as usize;
    let at = length_at + 2 + length;
    if body.len() < at {
        return Err(Unreadable("body"));
    }
    Ok(body.slice(at..))
}

/// Decodes a lease from its id, head and body.
pub fn decode_lease(id: &[u8], head: &[u8], body: &Bytes, default_max_attempts: u32) -> Result<Lease, Unreadable> {
    let mut reader = Reader(head);
    let head = Head::read(&mut reader)?;
    let fixed = Fixed::read(&mut reader)?;
    Ok(Lease {
        id: decode_id(id)?,
        payload: payload_of(body)?,
        priority: fixed.priority,
        metadata: fixed.metadata,
        fencing_token: head.fencing_token,
        attempt: head.attempts,
        max_attempts: fixed.max_attempts.unwrap_or(default_max_attempts),
        enqueued_at_ms: head.enqueued_at_ms,
        leased_at_ms: head.since_ms,
        expires_at_ms: head.due_ms,
        left_ms: head.due_ms.saturating_sub(head.since_ms),
        version: head.version,
    })
}

/// Decodes a message from its head (empty: pending at version 1), its body, its result (empty: none), and
/// the record of its attempts; `None`: the caller does not want them.
pub fn decode_message(
    id: MessageId,
    head: &[u8],
    body: &Bytes,
    result: Bytes,
    attempts: Option<&[u8]>,
    config: &QueueConfig,
) -> Result<Message, Unreadable> {
    let mut in_body = Reader(body);
    let sequence = in_body.number(7)?;
    let enqueued_at_ms = in_body.number(6)?;
    let mut reader = if head.is_empty() { in_body } else { Reader(head) };
    let head = match head {
        [] => Head::absent(sequence, enqueued_at_ms),
        _ => Head::read(&mut reader)?,
    };
    let fixed = Fixed::read(&mut reader)?;
    Ok(Message {
        last_attempts: attempts.map_or_else(|| Ok(Vec::new()), |record| last_attempts(record, &head))?,
        id,
        state: head.state,
        version: head.version,
        payload: payload_of(body)?,
        priority: fixed.priority,
        priority_class: fixed.priority_class,
        metadata: fixed.metadata,
        lease_ms: fixed.lease_ms,
        invisibility_ms: fixed.invisibility_ms,
        max_attempts: fixed.max_attempts.unwrap_or(config.max_attempts),
        attempts: head.attempts,
        enqueued_at_ms: head.enqueued_at_ms,
        state_since_ms: head.since_ms,
        due_ms: match head.state {
            State::Errored => head.since_ms + config.errored_retention_ms,
            State::Completed | State::Canceled => head.since_ms + config.terminal_retention_ms,
            State::Invisible | State::Pending | State::Running => head.due_ms,
        },
        fencing_token: head.fencing_token,
        worker: head.worker,
        reason: head.reason,
        coalesced: head.state == State::Running && head.flags & 1 == 1,
        result,
    })
}

/// Decodes the worker and the lease expiry (Unix ms) from the head of a running message.
pub fn decode_holder(head: &[u8]) -> Result<(String, u64), Unreadable> {
    let head = Head::read(&mut Reader(head))?;
    Ok((head.worker, head.due_ms))
}

#[cfg(test)]
mod tests {
    use super::super::content::encode_content;
    use super::*;
    use tallystone_model::{Metadata, NewMessage, PriorityClass};

    fn id(text: &str) -> MessageId {
        MessageId::parse("id", text).unwrap()
    }

    #[test]
    fn content_survives_storage() {
        let pairs = [("z", "1"), ("a", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let message = NewMessage {
            payload: Bytes::from_static(b"payload"),
            metadata: Metadata::parse(pairs.into()).unwrap(),
            lease_ms: Some(4_000_000),
            invisibility_ms: Some(1 << 40),
            max_attempts: Some(1_000),
            ..NewMessage::new(id("m"), 0)
        };
        let mut body = vec![0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 7];
        let class = PriorityClass { name: "urgent", offset_ms: -5 };
        encode_content(&message, Some(class), Some("z"), &mut body);
        let read =
            decode_message(id("m"), b"", &Bytes::from(body), Bytes::new(), Some(b""), &QueueConfig::default()).unwrap();
        assert_eq!((read.priority, &read.payload, &read.metadata), (-5, &message.payload, &message.metadata));
        assert_eq!(read.priority_class.as_deref(), Some("urgent"));
        assert_eq!((read.lease_ms, read.invisibility_ms, read.max_attempts), (Some(4_000_000), Some(1 << 40), 1_000));
        assert_eq!((read.enqueued_at_ms, read.version, read.state), (7, 1, State::Pending));
    }
}
