//! The Rust side of the packed records; the layouts are drawn in `lib/record.lua` and `lib/event.lua`.

use bytes::Bytes;
use std::collections::BTreeMap;
use tallystone_model::message::{Lease, Message, NewMessage};
use tallystone_model::store::DequeueRequest;
use tallystone_model::{Cause, Event, Filter, IndexKeys, MessageId, Metadata, State};

/// A record that cannot be read: a defect, or somebody else's key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record: {0}")]
pub struct Unreadable(pub &'static str);

const FIXED_IN_BODY: usize = 13;
const HEAD_BYTES: usize = 64;
const LEASE_FLAG: u8 = 1;
const INVISIBILITY_FLAG: u8 = 2;
const ATTEMPTS_FLAG: u8 = 4;
/// On the cause of an event that carries a payload.
const PAYLOAD_FLAG: u8 = 128;

/// An id as stored. A canonical UUID, the commonest of ids, takes 17 bytes instead of 36, three times per
/// message; the leading zero byte cannot begin any other id, which has no control characters.
pub fn encode_id(id: &MessageId, out: &mut Vec<u8>) {
    let text = id.as_str().as_bytes();
    // Only the canonical form may be shortened, or two ids would be one.
    if text.len() == 36
        && text[8] == b'-'
        && let Ok(uuid) = uuid::Uuid::try_parse_ascii(text)
        && uuid.hyphenated().encode_lower(&mut [0; 36]).as_bytes() == text
    {
        out.push(0);
        out.extend_from_slice(uuid.as_bytes());
        return;
    }
    out.extend_from_slice(text);
}

/// The id of stored bytes.
pub fn decode_id(stored: &[u8]) -> Result<MessageId, Unreadable> {
    let text = match stored {
        [0, uuid @ ..] => uuid::Uuid::from_slice(uuid).map_err(|_| Unreadable("id"))?.to_string(),
        text => String::from_utf8(text.to_vec()).map_err(|_| Unreadable("id"))?,
    };
    MessageId::parse("id", text).map_err(|_| Unreadable("id"))
}

/// Eight bytes whose order is that of the numbers: big-endian with the sign flipped (Q3).
pub fn encode_priority(priority: i64) -> [u8; 8] {
    ((priority as u64) ^ (1 << 63)).to_be_bytes()
}

fn decode_priority(bytes: u64) -> i64 {
    (bytes ^ (1 << 63)) as i64
}

/// The content of a message: fixed, then payload. In an exclusive queue the exclusivity pair comes first.
pub fn encode_content(message: &NewMessage, exclusivity_key: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(&encode_priority(message.priority));
    let length_at = out.len();
    out.extend_from_slice(&[0, 0]);
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    let flags = flag(message.lease_ms.is_some(), LEASE_FLAG)
        | flag(message.invisibility_ms.is_some(), INVISIBILITY_FLAG)
        | flag(message.max_attempts.is_some(), ATTEMPTS_FLAG);
    let pairs = message.metadata.pairs();
    if flags != 0 || !pairs.is_empty() {
        out.push(flags);
        if let Some(lease_ms) = message.lease_ms {
            out.extend_from_slice(&(lease_ms as u32).to_be_bytes());
        }
        if let Some(invisibility_ms) = message.invisibility_ms {
            out.extend_from_slice(&invisibility_ms.to_be_bytes()[2..]);
        }
        if let Some(max_attempts) = message.max_attempts {
            out.extend_from_slice(&(max_attempts as u16).to_be_bytes());
        }
        let first = exclusivity_key.and_then(|key| pairs.get_key_value(key));
        let rest = pairs.iter().filter(|(key, _)| Some(key.as_str()) != exclusivity_key);
        for (key, value) in first.into_iter().chain(rest) {
            push_short(out, key.as_bytes());
            push_short(out, value.as_bytes());
        }
    }
    let length = (out.len() - length_at - 2) as u16;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message.payload);
}

fn push_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

/// The values of an index's keys under a filter: how a filter names its list.
pub fn encode_tuple(filter: &Filter, out: &mut Vec<u8>) {
    for value in filter.pairs().values() {
        push_short(out, value.as_bytes());
    }
}

/// An index in a script's parameters: slot, building, number of names, names.
pub fn encode_index(slot: u8, building: bool, keys: &IndexKeys, out: &mut Vec<u8>) {
    out.extend_from_slice(&[slot, u8::from(building), keys.names().len() as u8]);
    for name in keys.names() {
        push_short(out, name.as_bytes());
    }
}

/// A Dequeue request up to its filters; `limit` is what it may still have, `payload_bytes` what it has got in earlier
/// steps of the same call (`None`: this is the first).
pub fn encode_request(
    limit: usize,
    payload_bytes: Option<usize>,
    request: &DequeueRequest,
    filters: usize,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&(limit as u16).to_be_bytes());
    out.push(u8::from(payload_bytes.is_some()));
    out.extend_from_slice(&(payload_bytes.unwrap_or(0) as u32).to_be_bytes());
    out.extend_from_slice(&(request.lease_ms.unwrap_or(0) as u32).to_be_bytes());
    push_short(out, request.worker.as_bytes());
    push_short(out, request.request_id.as_bytes());
    out.push(filters as u8);
}

/// One of its filters: the place of the index, and the values of its keys.
pub fn encode_request_filter(position: u8, tuple: &[u8], out: &mut Vec<u8>) {
    out.push(position);
    out.extend_from_slice(&(tuple.len() as u16).to_be_bytes());
    out.extend_from_slice(tuple);
}

/// Reads big-endian fields off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Unreadable> {
        if self.0.len() < n {
            return Err(Unreadable("too short"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn number(&mut self, n: usize) -> Result<u64, Unreadable> {
        Ok(self.bytes(n)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn short(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.number(1)? as usize;
        self.bytes(length)
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        String::from_utf8(self.short()?.to_vec()).map_err(|_| Unreadable("text"))
    }

    fn state(&mut self) -> Result<Option<State>, Unreadable> {
        match self.number(1)? as u8 {
            0 => Ok(None),
            code => State::from_code(code).map(Some).ok_or(Unreadable("state")),
        }
    }
}

/// What stands in fixed.
struct Fixed {
    priority: i64,
    lease_ms: Option<u64>,
    invisibility_ms: Option<u64>,
    max_attempts: Option<u32>,
    metadata: Metadata,
}

impl Fixed {
    fn read(reader: &mut Reader<'_>) -> Result<Fixed, Unreadable> {
        let priority = decode_priority(reader.number(8)?);
        let length = reader.number(2)? as usize;
        let mut rest = Reader(reader.bytes(length)?);
        let flags = if rest.0.is_empty() { 0 } else { rest.number(1)? as u8 };
        let mut option = |flag: u8, n: usize| (flags & flag != 0).then(|| rest.number(n)).transpose();
        let lease_ms = option(LEASE_FLAG, 4)?;
        let invisibility_ms = option(INVISIBILITY_FLAG, 6)?;
        let max_attempts = option(ATTEMPTS_FLAG, 2)?.map(|n| n as u32);
        let mut pairs = BTreeMap::new();
        while !rest.0.is_empty() {
            let key = rest.text()?;
            pairs.insert(key, rest.text()?);
        }
        let metadata = Metadata::parse(pairs).map_err(|_| Unreadable("metadata"))?;
        Ok(Fixed { priority, lease_ms, invisibility_ms, max_attempts, metadata })
    }
}

/// What stands in a head, fixed excepted.
struct Head {
    state: State,
    version: u32,
    since_ms: u64,
    due_ms: u64,
    flags: u8,
    attempts: u32,
    fencing_token: u64,
    sequence: u64,
    enqueued_at_ms: u64,
    worker: String,
    reason: String,
}

impl Head {
    /// Of a message that has none: pending at version 1.
    fn absent(sequence: u64, enqueued_at_ms: u64) -> Head {
        Head {
            state: State::Pending,
            version: 1,
            since_ms: enqueued_at_ms,
            due_ms: 0,
            flags: 0,
            attempts: 0,
            fencing_token: 0,
            sequence,
            enqueued_at_ms,
            worker: String::new(),
            reason: String::new(),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Head, Unreadable> {
        let mut front = Reader(reader.bytes(HEAD_BYTES)?);
        let state = front.state()?.ok_or(Unreadable("state"))?;
        let version = front.number(4)? as u32;
        let since_ms = front.number(6)?;
        let due_ms = front.number(6)?;
        let _ended = front.bytes(7 + 1 + 4)?;
        let flags = front.number(1)? as u8;
        let attempts = front.number(2)? as u32;
        let fencing_token = front.number(7)?;
        let _lease_and_extension = front.bytes(4 + 8)?;
        let sequence = front.number(7)?;
        let enqueued_at_ms = front.number(6)?;
        let worker = reader.text()?;
        let reason = reader.text()?;
        Ok(Head {
            state,
            version,
            since_ms,
            due_ms,
            flags,
            attempts,
            fencing_token,
            sequence,
            enqueued_at_ms,
            worker,
            reason,
        })
    }
}

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

/// A lease from its reply: id, head, body.
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
        version: head.version,
    })
}

/// A message from its head (empty: pending at version 1) and body.
pub fn decode_message(
    id: MessageId,
    head: &[u8],
    body: &Bytes,
    default_max_attempts: u32,
    retention_ms: u64,
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
        id,
        state: head.state,
        version: head.version,
        payload: payload_of(body)?,
        priority: fixed.priority,
        metadata: fixed.metadata,
        lease_ms: fixed.lease_ms,
        invisibility_ms: fixed.invisibility_ms,
        max_attempts: fixed.max_attempts.unwrap_or(default_max_attempts),
        attempts: head.attempts,
        enqueued_at_ms: head.enqueued_at_ms,
        state_since_ms: head.since_ms,
        due_ms: if head.state.is_terminal() { head.since_ms + retention_ms } else { head.due_ms },
        fencing_token: head.fencing_token,
        worker: head.worker,
        reason: head.reason,
        coalesced: head.state == State::Running && head.flags & 1 == 1,
    })
}

/// Holder's worker and lease expiry, from its head.
pub fn decode_holder(head: &[u8]) -> Result<(String, u64), Unreadable> {
    let head = Head::read(&mut Reader(head))?;
    Ok((head.worker, head.due_ms))
}

/// The events of one outbox entry, whose time is `at_ms`.
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
        let payload = match with_payload {
            true => {
                let length = reader.number(2)? as usize;
                Some(Bytes::copy_from_slice(reader.bytes(length)?))
            }
            false => None,
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
                // The state is the one the record tells of, or the one the message was enqueued into.
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
        });
    }
    Ok(events)
}

/// The shard's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// Of the configuration.
    pub revision: u32,
    /// The last number given out.
    pub sequence: u64,
    /// By state, in the order of their numbers.
    pub counts: [u64; 6],
    /// Of the queue.
    pub created_at_ms: u64,
    /// The offset of the next event.
    pub added: u64,
    /// The offset of the first event that no sink has yet.
    pub acked: u64,
}

/// Reads the state record; its layout is in `lib/shard.lua`.
pub fn decode_state(raw: &[u8]) -> Result<ShardState, Unreadable> {
    let mut reader = Reader(raw);
    let revision = reader.number(4)? as u32;
    let sequence = reader.number(7)?;
    let mut counts = [0; 6];
    for count in &mut counts {
        *count = reader.number(6)?;
    }
    let _wait_sweep_parked_popped = reader.bytes(6 + 6 + 4 + 6)?;
    let created_at_ms = reader.number(6)?;
    Ok(ShardState { revision, sequence, counts, created_at_ms, added: reader.number(7)?, acked: reader.number(7)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse("id", text).unwrap()
    }

    #[test]
    fn q3_ids_survive_storage_and_uuids_are_short() {
        let stored = |text: &str| {
            let mut out = Vec::new();
            encode_id(&id(text), &mut out);
            assert_eq!(decode_id(&out), Ok(id(text)));
            out.len()
        };
        assert_eq!(stored("0190163d-8694-739b-aea5-966c26f8ad91"), 17);
        assert_eq!(stored("0190163D-8694-739B-AEA5-966C26F8AD91"), 36, "not the canonical form: kept as it is");
        assert_eq!(stored("0190163d-8694-739b-aea5-966c26f8adzz"), 36);
        assert_eq!(stored("ü/1"), 4);
    }

    #[test]
    fn q3_priorities_sort_as_bytes_over_the_whole_range() {
        let all = [i64::MIN, i64::MIN + 1, -1, 0, 1, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
        for pair in all.windows(2) {
            assert!(encode_priority(pair[0]) < encode_priority(pair[1]));
        }
        for priority in all {
            assert_eq!(decode_priority(u64::from_be_bytes(encode_priority(priority))), priority);
        }
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
            ..NewMessage::new(id("m"), -5)
        };
        let mut body = vec![0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 7];
        encode_content(&message, Some("z"), &mut body);
        let read = decode_message(id("m"), b"", &Bytes::from(body), 5, 0).unwrap();
        assert_eq!((read.priority, &read.payload, &read.metadata), (-5, &message.payload, &message.metadata));
        assert_eq!((read.lease_ms, read.invisibility_ms, read.max_attempts), (Some(4_000_000), Some(1 << 40), 1_000));
        assert_eq!((read.enqueued_at_ms, read.version, read.state), (7, 1, State::Pending));
    }

    #[test]
    fn rubbish_is_refused_not_believed() {
        for rubbish in [&b""[..], b"\x03", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(decode_lease(b"x", rubbish, &Bytes::copy_from_slice(rubbish), 1).is_err());
            assert!(decode_state(rubbish).is_err());
        }
        assert!(decode_events(0, b"\x09\x00\x01").is_err());
    }
}
