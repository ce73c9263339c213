//! Events, from the entries of an outbox; `lib/event.lua` has their layout.

use super::content::Fixed;
use super::head::Head;
use super::id::decode_id;
use super::reader::{Reader, Unreadable};
use bytes::Bytes;
use tallystone_model::{Cause, Event, State};

/// In the cause of an event that carries a payload, or a result.
const PAYLOAD_FLAG: u8 = 128;

/// The start of an entry that is the mark of a new timeline; no state has this number.
const TIMELINE_MARK: u8 = 255;

/// The offset that the next event of the earlier timeline would have had; `None`: the entry is no mark of a new one.
pub fn decode_timeline_mark(entry: &[u8]) -> Option<u64> {
    match entry.split_first()? {
        (&TIMELINE_MARK, rest) => Reader(rest).number(7).ok(),
        _ => None,
    }
}

/// Decodes the events of one outbox entry, whose time is `at_ms`.
pub fn decode_events(at_ms: u64, entry: &[u8]) -> Result<Vec<Event>, Unreadable> {
    let mut reader = Reader(entry);
    let mut events = Vec::new();
    while !reader.0.is_empty() {
        let from = reader.state()?;
        let to = reader.state()?;
        let by = reader.number(1)? as u8;
        let with_payload = by & PAYLOAD_FLAG != 0;
        let by = Cause::from_code(by & !PAYLOAD_FLAG).ok_or(Unreadable("cause"))?;
        let version = reader.number(4)? as u32;
        let reason = reader.text()?;
        let id_bytes = reader.number(1)? as usize;
        let id = decode_id(reader.bytes(id_bytes)?)?;
        let moved = from != to && from.is_some() && to.is_some();
        let left_since_ms = if moved && version > 2 { Some(reader.number(6)?) } else { None };
        let head = match reader.0 {
            [0, ..] => {
                let _no_head = reader.number(1)?;
                Head::absent(reader.number(7)?, at_ms)
            }
            _ => Head::read(&mut reader)?,
        };
        let Fixed { priority, metadata, .. } = Fixed::read(&mut reader)?;
        let bytes = match with_payload {
            true => {
                let length = reader.number(2)? as usize;
                Some(Bytes::copy_from_slice(reader.bytes(length)?))
            }
            false => None,
        };
        let (payload, result) = match (from, to) {
            (_, Some(State::Completed)) | (Some(State::Completed), None) => (None, bytes.unwrap_or_default()),
            _ => (bytes, Bytes::new()),
        };
        let is_due = matches!(to, Some(State::Invisible | State::Running));
        events.push(Event {
            id,
            version,
            from,
            to,
            by,
            at_ms,
            from_since_ms: match (from, left_since_ms) {
                (None, _) => 0,
                (Some(_), Some(since_ms)) => since_ms,
                // A change of state at version 2: the previous state is the one in which the message was enqueued.
                (Some(_), None) if moved => head.enqueued_at_ms,
                (Some(_), None) => head.since_ms,
            },
            since_ms: head.since_ms,
            sequence: head.sequence,
            enqueued_at_ms: head.enqueued_at_ms,
            priority,
            metadata,
            attempts: head.attempts,
            fencing_token: head.fencing_token,
            worker: head.worker,
            due_ms: if is_due { head.due_ms } else { 0 },
            reason,
            last_reason: head.reason,
            coalesced: to == Some(State::Running) && head.flags & 1 == 1,
            payload,
            result,
        });
    }
    Ok(events)
}
