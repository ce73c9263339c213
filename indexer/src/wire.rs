//! Events and watermarks as they stand in Kafka. What comes in may be from anyone who may write to the topic: it is
//! taken only if a store can keep it.

use crate::fold::{wire_cause, wire_state};
use prost::Message;
use tallystone_model::limits::*;
use tallystone_model::names::{check_range, check_text};
use tallystone_model::{Cause, Event, MessageId, Metadata, QueueName, Recorded, Refusal, Shard, State};
use tallystone_proto::event::v1 as wire;

/// The header that gives a record's type.
pub(crate) const TYPE_HEADER: &str = "tallystone-type";
/// The header's value for an event.
pub(crate) const EVENT: &[u8] = b"event";
/// The header's value for a watermark.
pub(crate) const WATERMARK: &[u8] = b"watermark";

/// 2000-01-01: nothing that this service knows of happened before.
const AT_MS_MIN: u64 = 946_684_800_000;
/// How far the store's clock may be ahead of the reader's.
const AHEAD_MS_MAX: u64 = 86_400_000;

/// Why a record can never be indexed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Its bytes are no such message.
    #[error("malformed: {0}")]
    Malformed(String),
    /// One of its fields has a value that no server writes.
    #[error("invalid: {0}")]
    Invalid(String),
    /// It says neither that it is an event nor that it is a watermark.
    #[error("of the unknown type {0:?}")]
    UnknownType(String),
}

impl Undecodable {
    /// The kind in one word, for a metric.
    pub fn kind(&self) -> &'static str {
        match self {
            Undecodable::Malformed(_) => "malformed",
            Undecodable::Invalid(_) => "invalid",
            Undecodable::UnknownType(_) => "unknown_type",
        }
    }
}

impl From<Refusal> for Undecodable {
    fn from(refusal: Refusal) -> Self {
        Undecodable::Invalid(refusal.to_string())
    }
}

/// Makes keys and values of records; keeps its memory from one event to the next.
#[derive(Default)]
pub struct Encoder {
    wire: wire::Event,
    key: String,
    value: Vec<u8>,
}

impl Encoder {
    /// The key of the message's records, by which all of them go to one partition; and the value of this one, always
    /// the same bytes for the same event.
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
        self.value.clear();
        wire.encode(&mut self.value).expect("a vector has room");
        self.key.clear();
        self.key.extend([queue, "/", event.id.as_str()]);
        (self.key.as_bytes(), &self.value)
    }
}

/// The value of one event's record.
pub fn encode(recorded: &Recorded) -> Vec<u8> {
    Encoder::default().encode(recorded).1.to_vec()
}

/// The event of a record's value, read at `now_ms` by the reader's clock.
pub fn decode(value: &[u8], now_ms: u64) -> Result<Recorded, Undecodable> {
    let wire = wire::Event::decode(value).map_err(|error| Undecodable::Malformed(error.to_string()))?;
    let number = u16::try_from(wire.shard).map_err(|_| invalid("shard", wire.shard))?;
    let shard = Shard { queue: QueueName::parse("queue", &wire.queue)?, number };
    let (from, to) = (state("from_state", wire.from_state)?, state("to_state", wire.to_state)?);
    if from.is_none() && to.is_none() {
        return Err(Undecodable::Invalid("it neither leaves nor enters a state".to_owned()));
    }
    if wire.version == 0 {
        return Err(invalid("version", 0));
    }
    let by = u8::try_from(wire.cause).ok().and_then(Cause::from_code).ok_or_else(|| invalid("cause", wire.cause))?;
    for (field, text, bytes_max) in [
        ("worker", &wire.worker, WORKER_BYTES_MAX),
        ("reason", &wire.reason, REASON_BYTES_MAX),
        ("last_reason", &wire.last_reason, REASON_BYTES_MAX),
    ] {
        check_text(field, text, 0, bytes_max)?;
    }
    if let Some(payload) = wire.payload.as_ref().filter(|payload| payload.len() > PAYLOAD_BYTES_MAX) {
        return Err(Undecodable::Invalid(format!("payload: is {} bytes long", payload.len())));
    }
    // A lease or a delay may end long after.
    let due_ms_max = now_ms + AHEAD_MS_MAX + DELAY_MS_MAX;
    let event = Event {
        id: MessageId::parse("id", wire.id)?,
        version: wire.version,
        from,
        to,
        by,
        at_ms: time("at_ms", wire.at_ms, now_ms)?,
        from_since_ms: or_zero(wire.from_state_since_ms, |ms| time("from_state_since_ms", ms, now_ms))?,
        since_ms: time("state_since_ms", wire.state_since_ms, now_ms)?,
        sequence: signed("sequence", wire.sequence)?,
        enqueued_at_ms: time("enqueued_at_ms", wire.enqueued_at_ms, now_ms)?,
        priority: wire.priority,
        metadata: Metadata::parse(wire.metadata)?,
        attempts: wire.attempts,
        fencing_token: signed("fencing_token", wire.fencing_token)?,
        worker: wire.worker,
        due_ms: or_zero(wire.due_ms, |ms| Ok(check_range("due_ms", ms, AT_MS_MIN, due_ms_max)?))?,
        reason: wire.reason,
        last_reason: wire.last_reason,
        coalesced: wire.coalesced,
        payload: wire.payload,
    };
    Ok(Recorded { shard, offset: signed("offset", wire.offset)?, event })
}

/// The value of a watermark's record.
pub fn encode_watermark(up_to_ms: u64) -> Vec<u8> {
    wire::Watermark { up_to_ms: up_to_ms as i64 }.encode_to_vec()
}

/// The time of a watermark's record, read at `now_ms` by the reader's clock.
pub fn decode_watermark(value: &[u8], now_ms: u64) -> Result<u64, Undecodable> {
    let wire = wire::Watermark::decode(value).map_err(|error| Undecodable::Malformed(error.to_string()))?;
    time("up_to_ms", wire.up_to_ms, now_ms)
}

fn state(field: &'static str, number: i32) -> Result<Option<State>, Undecodable> {
    match u8::try_from(number).ok() {
        Some(0) => Ok(None),
        number_u8 => number_u8.and_then(State::from_code).map(Some).ok_or_else(|| invalid(field, number)),
    }
}

/// A moment that has been, give or take a clock.
fn time(field: &'static str, at_ms: i64, now_ms: u64) -> Result<u64, Undecodable> {
    Ok(check_range(field, at_ms, AT_MS_MIN, now_ms + AHEAD_MS_MAX)?)
}

fn or_zero(ms: i64, check: impl FnOnce(i64) -> Result<u64, Undecodable>) -> Result<u64, Undecodable> {
    if ms == 0 { Ok(0) } else { check(ms) }
}

/// Stores know signed numbers only.
fn signed(field: &'static str, number: u64) -> Result<u64, Undecodable> {
    i64::try_from(number).map(|_| number).map_err(|_| invalid(field, number))
}

fn invalid(field: &'static str, number: impl std::fmt::Display) -> Undecodable {
    Undecodable::Invalid(format!("{field}: is {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn any_time() -> impl Strategy<Value = u64> {
        AT_MS_MIN..=NOW_MS + AHEAD_MS_MAX
    }

    fn any_state() -> impl Strategy<Value = State> {
        prop::sample::select(State::ALL.to_vec())
    }

    fn any_recorded() -> impl Strategy<Value = Recorded> {
        let names = ("[A-Za-z0-9._:/-]{1,128}", "\\PC{1,40}", btree_map("\\PC{1,12}", "\\PC{1,40}", 0..=4));
        let states = (prop::option::of(any_state()), any_state(), any::<bool>());
        let states = states.prop_map(|(from, to, gone)| (from, (!gone || from.is_none()).then_some(to)));
        let numbers = (any::<u16>(), 0..=i64::MAX as u64, 0..=i64::MAX as u64, 0..=i64::MAX as u64);
        let times = (any_time(), prop_oneof![Just(0), any_time()], any_time(), any_time());
        let counts = (1..=u32::MAX, any::<u32>(), any::<i64>(), prop_oneof![Just(0), any_time()]);
        let texts = ("\\PC{0,30}", "\\PC{0,60}", "\\PC{0,60}", any::<bool>());
        let payload = prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
        let by = prop::sample::select(Cause::ALL.to_vec());
        (names, states, numbers, times, counts, texts, payload, by).prop_map(
            |(names, (from, to), numbers, times, counts, texts, payload, by)| Recorded {
                shard: Shard { queue: QueueName::parse("queue", &names.0).unwrap(), number: numbers.0 },
                offset: numbers.1,
                event: Event {
                    id: MessageId::parse("id", names.1).unwrap(),
                    version: counts.0,
                    from,
                    to,
                    by,
                    at_ms: times.0,
                    from_since_ms: times.1,
                    since_ms: times.2,
                    sequence: numbers.2,
                    enqueued_at_ms: times.3,
                    priority: counts.2,
                    metadata: Metadata::parse(names.2).unwrap(),
                    attempts: counts.1,
                    fencing_token: numbers.3,
                    worker: texts.0,
                    due_ms: counts.3,
                    reason: texts.1,
                    last_reason: texts.2,
                    coalesced: texts.3,
                    payload: payload.map(Into::into),
                },
            },
        )
    }

    proptest! {
        #[test]
        fn q19_what_is_written_is_read(recorded in any_recorded()) {
            let bytes = encode(&recorded);
            let read = decode(&bytes, NOW_MS);
            prop_assert_eq!(read.as_ref(), Ok(&recorded));
            prop_assert_eq!(encode(&read.unwrap()), bytes);
        }

        #[test]
        fn q19_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, NOW_MS);
            let _ = decode_watermark(&bytes, NOW_MS);
        }
    }

    /// A valid event, changed on the wire.
    fn refused(change: impl FnOnce(&mut wire::Event)) -> String {
        let at_ms = NOW_MS as i64;
        let mut event = wire::Event {
            queue: "q".to_owned(),
            id: "m".to_owned(),
            sequence: 1,
            version: 1,
            to_state: State::Pending as i32,
            cause: Cause::Enqueue as i32,
            at_ms,
            state_since_ms: at_ms,
            enqueued_at_ms: at_ms,
            ..wire::Event::default()
        };
        assert!(decode(&event.encode_to_vec(), NOW_MS).is_ok());
        change(&mut event);
        decode(&event.encode_to_vec(), NOW_MS).unwrap_err().to_string()
    }

    #[test]
    fn q19_what_no_server_writes_is_refused_by_its_field() {
        let too_late = (NOW_MS + AHEAD_MS_MAX + 1) as i64;
        let whys = [
            ("queue", refused(|event| event.queue = "a b".to_owned())),
            ("id", refused(|event| event.id = String::new())),
            ("shard", refused(|event| event.shard = 65_536)),
            ("from_state", refused(|event| event.from_state = 7)),
            ("to_state", refused(|event| event.to_state = -1)),
            ("state", refused(|event| event.to_state = 0)),
            ("cause", refused(|event| event.cause = 14)),
            ("cause", refused(|event| event.cause = 0)),
            ("version", refused(|event| event.version = 0)),
            ("at_ms", refused(|event| event.at_ms = too_late)),
            ("at_ms", refused(|event| event.at_ms = 0)),
            ("state_since_ms", refused(|event| event.state_since_ms = -1)),
            ("from_state_since_ms", refused(|event| event.from_state_since_ms = too_late)),
            ("enqueued_at_ms", refused(|event| event.enqueued_at_ms = i64::MAX)),
            ("due_ms", refused(|event| event.due_ms = i64::MAX)),
            ("sequence", refused(|event| event.sequence = u64::MAX)),
            ("offset", refused(|event| event.offset = u64::MAX)),
            ("fencing_token", refused(|event| event.fencing_token = u64::MAX)),
            ("metadata", refused(|event| event.metadata = [("k".to_owned(), String::new())].into())),
            ("worker", refused(|event| event.worker = "w".repeat(129))),
            ("reason", refused(|event| event.reason = "\n".to_owned())),
            ("last_reason", refused(|event| event.last_reason = "x".repeat(256))),
            ("payload", refused(|event| event.payload = Some(vec![0; PAYLOAD_BYTES_MAX + 1].into()))),
        ];
        for (field, why) in whys {
            assert!(why.starts_with("invalid: ") && why.contains(field), "{field}: {why}");
        }
    }

    #[test]
    fn q19_a_watermark_is_no_event_and_an_event_no_watermark() {
        let watermark = encode_watermark(NOW_MS);
        assert_eq!(decode_watermark(&watermark, NOW_MS), Ok(NOW_MS));
        assert!(matches!(decode(&watermark, NOW_MS), Err(Undecodable::Invalid(_))));
        assert!(decode_watermark(&[], NOW_MS).is_err());
        assert!(decode_watermark(&encode_watermark(NOW_MS + 2 * AHEAD_MS_MAX), NOW_MS).is_err());
        assert!(matches!(decode(b"not protobuf", NOW_MS), Err(Undecodable::Malformed(_))));
    }
}
