//! Every event is read as it was written; every other byte sequence is read or refused.

use super::super::encoder::{encode, encode_loss, encode_watermark};
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
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let payload = (prop::option::of(bytes()), bytes());
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
                payload: payload.0.map(Into::into),
                result: payload.1.into(),
            },
        },
    )
}

proptest! {
    #[test]
    fn q19_an_event_is_read_as_it_was_written(recorded in any_recorded()) {
        let bytes = encode(&recorded);
        let read = decode(&bytes, NOW_MS);
        prop_assert_eq!(read.as_ref(), Ok(&recorded));
        prop_assert_eq!(encode(&read.unwrap()), bytes);
    }

    #[test]
    fn q19_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, NOW_MS);
        let _ = decode_watermark(&bytes, NOW_MS);
        let _ = decode_loss(&bytes, NOW_MS);
    }
}

/// The error of a valid event with one changed field.
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
fn q19_values_that_no_server_writes_are_refused_with_the_field() {
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
        ("result", refused(|event| event.result = vec![0; RESULT_BYTES_MAX + 1].into())),
    ];
    for (field, why) in whys {
        assert!(why.starts_with("invalid: ") && why.contains(field), "{field}: {why}");
    }
}

#[test]
fn q19_watermarks_and_events_are_not_confused() {
    let watermark = encode_watermark(NOW_MS);
    assert_eq!(decode_watermark(&watermark, NOW_MS), Ok(NOW_MS));
    assert!(matches!(decode(&watermark, NOW_MS), Err(Undecodable::Invalid(_))));
    assert!(decode_watermark(&[], NOW_MS).is_err());
    assert!(decode_watermark(&encode_watermark(NOW_MS + 2 * AHEAD_MS_MAX), NOW_MS).is_err());
    assert!(matches!(decode(b"not protobuf", NOW_MS), Err(Undecodable::Malformed(_))));
}

#[test]
fn q19_a_loss_is_read_as_it_was_written_and_as_nothing_else() {
    let shard = Shard { queue: QueueName::parse("queue", "q").unwrap(), number: 3 };
    let loss = Loss { shard, lost_to_ms: NOW_MS };
    let bytes = encode_loss(&loss);
    assert_eq!(decode_loss(&bytes, NOW_MS), Ok(loss.clone()));
    assert!(decode(&bytes, NOW_MS).is_err() && decode_watermark(&bytes, NOW_MS).is_err());
    assert!(decode_loss(&encode_watermark(NOW_MS), NOW_MS).is_err());
    for bad in [
        wire::Loss { queue: "a b".to_owned(), ..wire::Loss::decode(&*bytes).unwrap() },
        wire::Loss { lost_to_ms: (NOW_MS + 2 * AHEAD_MS_MAX) as i64, ..wire::Loss::decode(&*bytes).unwrap() },
    ] {
        assert!(decode_loss(&bad.encode_to_vec(), NOW_MS).is_err(), "{bad:?}");
    }
}
