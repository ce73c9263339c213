//! The Rust side of the packed records; the layouts are drawn in `counter/shard.lua`, `append.lua` and `commit.lua`.

use super::defect;
use crate::checkpoints::{Checkpoint, LeaseOrder};
use crate::log::{Change, Closed, GRANULE_MS, Granule, NewEvent, Pending};
use crate::refusal::Refusal;
use tallystone_lua::counter::{CLOSED_DOWN, CLOSED_UP};

const ENTRY_BYTES: usize = 27;
const HEAD_BYTES: usize = 13;
const ID_BYTES: usize = 12;
/// Length of the rest, offset, id, length of the token.
const BEFORE_TOKEN: usize = 1 + 2 + ID_BYTES + 1;
const CHECKPOINT_BYTES: usize = 33;

/// A number of so many bytes, the highest first.
pub(super) fn read(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// A pending record; empty: nothing is pending.
pub(super) fn pending(raw: &[u8]) -> Result<Pending, Refusal> {
    if raw.is_empty() {
        return Ok(Pending::default());
    }
    if raw.len() < HEAD_BYTES || !(raw.len() - HEAD_BYTES).is_multiple_of(ENTRY_BYTES) {
        return Err(defect("an unreadable pending record"));
    }
    let (head, entries) = raw.split_at(HEAD_BYTES);
    let closed = match head[6] {
        CLOSED_UP => Closed::Up,
        CLOSED_DOWN => Closed::Down,
        _ => Closed::No,
    };
    let granules = entries.chunks_exact(ENTRY_BYTES).map(granule).collect();
    Ok(Pending { last_write_ms: read(&head[..6]), closed, granules })
}

fn granule(entry: &[u8]) -> Granule {
    let number = read(&entry[..5]);
    let at = |offset: u64| number * GRANULE_MS + offset;
    let (first, last, cleared) = (read(&entry[21..23]), read(&entry[23..25]), read(&entry[25..27]));
    Granule {
        number,
        sum: read(&entry[5..13]) as i64,
        adds_ms: (first <= last).then(|| (at(first), at(last))),
        cleared_ms: cleared.checked_sub(1).map(at),
    }
}

pub(super) fn closed_code(closed: Closed) -> u8 {
    match closed {
        Closed::No => 0,
        Closed::Up => CLOSED_UP,
        Closed::Down => CLOSED_DOWN,
    }
}

/// An item of `append.lua`: what the script needs to place it, then its record.
pub(super) fn item(event: &NewEvent, id: [u8; ID_BYTES], slot: u32, events_key: u8, counter: u16) -> Vec<u8> {
    let token = event.token.as_str().as_bytes();
    let (clear, delta) = match event.change {
        Change::Add(delta) => (0, delta),
        Change::Clear => (1, 0),
    };
    let mut out = Vec::with_capacity(64);
    out.push(events_key);
    put(&mut out, counter.into(), 2);
    put(&mut out, event.time_ms, 6);
    put(&mut out, slot.into(), 4);
    // All of the record that says which event it is: its length is no part of that.
    out.push((BEFORE_TOKEN - 1 + token.len()) as u8);
    out.push(clear);
    out.extend_from_slice(&delta.to_be_bytes());
    let record = out.len();
    out.push(0);
    put(&mut out, event.time_ms % GRANULE_MS, 2);
    out.extend_from_slice(&id);
    out.push(token.len() as u8);
    out.extend_from_slice(token);
    out.push(clear);
    let bytes = delta.to_be_bytes();
    // The shortest that reads back as the same number: leading bytes that only repeat the sign go.
    let sign = if delta < 0 { 0xff } else { 0 };
    let redundant = (0..7).take_while(|at| bytes[*at] == sign && (bytes[at + 1] ^ sign) < 0x80).count();
    out.extend_from_slice(&bytes[redundant..]);
    out[record] = (out.len() - record - 1) as u8;
    out
}

/// The sum of the adds of one counter that happened after an offset, in a slot of one granule.
pub(super) fn sum_after(mut slot: &[u8], id: [u8; ID_BYTES], after: Option<u64>) -> Result<i128, Refusal> {
    let unreadable = || defect("an unreadable slot of events");
    let mut sum = 0;
    while let Some((length, rest)) = slot.split_first() {
        let (record, more) = rest.split_at_checked(usize::from(*length)).ok_or_else(unreadable)?;
        slot = more;
        let (head, tail) = record.split_at_checked(BEFORE_TOKEN - 1).ok_or_else(unreadable)?;
        let (_, change) = tail.split_at_checked(usize::from(head[2 + ID_BYTES])).ok_or_else(unreadable)?;
        let (clear, delta) = change.split_first().ok_or_else(unreadable)?;
        let is_after = after.is_none_or(|after| read(&head[..2]) > after);
        if head[2..2 + ID_BYTES] == id && *clear == 0 && is_after {
            let negative = delta.first().is_some_and(|first| *first >= 0x80);
            let start: i64 = if negative { -1 } else { 0 };
            sum += i128::from(delta.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)));
        }
    }
    Ok(sum)
}

pub(super) fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHECKPOINT_BYTES);
    out.extend_from_slice(&checkpoint.count.to_be_bytes());
    put(&mut out, checkpoint.exact_to_ms, 6);
    put(&mut out, checkpoint.last_write_ms, 6);
    put(&mut out, checkpoint.lease.leased_at_ms, 6);
    put(&mut out, checkpoint.lease.fencing_token, 7);
    out
}

pub(super) fn decode_checkpoint(raw: &[u8]) -> Result<Checkpoint, Refusal> {
    if raw.len() != CHECKPOINT_BYTES {
        return Err(defect("an unreadable checkpoint"));
    }
    Ok(Checkpoint {
        count: read(&raw[..8]) as i64,
        exact_to_ms: read(&raw[8..14]),
        last_write_ms: read(&raw[14..20]),
        lease: LeaseOrder { leased_at_ms: read(&raw[20..26]), fencing_token: read(&raw[26..33]) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{CounterName, Token};

    #[test]
    fn n2_every_delta_reads_back_from_its_record() {
        let bounds = (0..64).flat_map(|bit| [1_i64 << bit, (1_i64 << bit).wrapping_sub(1), -(1_i64 << (bit % 63))]);
        for delta in bounds.chain([0, -1, -128, -129, 127, 128, i64::MIN, i64::MAX]) {
            let event = NewEvent {
                counter: CounterName::parse("c").unwrap(),
                token: Token::parse("t").unwrap(),
                time_ms: 1_234,
                change: Change::Add(delta),
            };
            let item = item(&event, [7; ID_BYTES], 9, 4, 0);
            let record = &item[23..];
            let twice = [record, record].concat();
            assert_eq!(sum_after(&twice, [7; ID_BYTES], None), Ok(2 * i128::from(delta)), "{delta}");
            assert_eq!(sum_after(record, [7; ID_BYTES], Some(233)), Ok(i128::from(delta)));
            assert_eq!(sum_after(record, [7; ID_BYTES], Some(234)), Ok(0), "not after its own time");
            assert_eq!(sum_after(record, [8; ID_BYTES], None), Ok(0), "another counter's");
        }
    }

    #[test]
    fn n7_a_checkpoint_reads_back() {
        let lease = LeaseOrder { leased_at_ms: 3, fencing_token: 1 << 50 };
        let checkpoint = Checkpoint { count: -5, exact_to_ms: 1, last_write_ms: 2, lease };
        assert_eq!(decode_checkpoint(&encode_checkpoint(&checkpoint)), Ok(checkpoint));
        assert!(decode_checkpoint(b"x").is_err());
    }
}
