//! The Rust side of the packed records. Their layouts are described in the scripts: `counter/lib/pending.lua`,
//! `counter/lib/slots.lua`, `counter/append.lua` and `counter/commit.lua`.

use super::calls::defect;
use super::token::{Packed, unpack};
use crate::checkpoints::{Checkpoint, Epoch, LeaseOrder};
use crate::log::{Bounds, Change, Closed, Event, Pending, WINDOW_MS, Window};
use crate::refusal::Refusal;
use tallystone_lua::counter::{
    CHECKPOINT_BYTES, CLEARED_BYTES, CLOSED_DOWN, CLOSED_UP, DELETED_BYTE, EPOCH_BYTES, HAS_OLDER,
};

const ENTRY_BYTES: usize = 27;
const HEAD_BYTES: usize = 21;
const ID_BYTES: usize = 12;
/// The count and the time to which it is exact.
const CROSSING_HEAD_BYTES: usize = 8 + 6;
/// The length of the rest and the length of the delta, one byte each.
const BEFORE_DELTA: usize = 1 + 1;
/// The offset in the window and the counter's hash.
const BEFORE_TOKEN: usize = 2 + ID_BYTES;

/// A big-endian number of up to eight bytes.
pub(super) fn read(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// Reads a pending record; an empty one says that nothing is pending.
pub(super) fn pending(raw: &[u8]) -> Result<Pending, Refusal> {
    if raw.is_empty() {
        return Ok(Pending::default());
    }
    let (head, entries) = raw.split_at_checked(HEAD_BYTES).ok_or_else(|| defect("an unreadable pending record"))?;
    let closed = match head[6] % HAS_OLDER {
        CLOSED_UP => Closed::Up,
        CLOSED_DOWN => Closed::Down,
        _ => Closed::No,
    };
    Ok(Pending { last_write_ms: read(&head[..6]), closed, windows: windows(entries)? })
}

/// The time of the latest add of a pending record, in Unix ms, as far as its field has it: older windows may be in another
/// field. `None`: it has none.
pub(super) fn last_add_ms(raw: &[u8]) -> Result<Option<u64>, Refusal> {
    let last_ms = |window: &Window| window.adds_ms.map(|(_, last_ms)| last_ms);
    Ok(pending(raw)?.windows.iter().filter_map(last_ms).max())
}

/// Reads the windows of a pending record, or those of its field of older windows.
pub(super) fn windows(entries: &[u8]) -> Result<Vec<Window>, Refusal> {
    if !entries.len().is_multiple_of(ENTRY_BYTES) {
        return Err(defect("an unreadable pending record"));
    }
    Ok(entries.chunks_exact(ENTRY_BYTES).map(window).collect())
}

fn window(entry: &[u8]) -> Window {
    let number = read(&entry[..5]);
    let at = |offset: u64| number * WINDOW_MS + offset;
    let (first, last, cleared) = (read(&entry[21..23]), read(&entry[23..25]), read(&entry[25..27]));
    Window {
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

/// An event as `append.lua` takes it.
pub(super) struct Item {
    /// The number of its counter in the call.
    pub(super) counter: u16,
    pub(super) time_ms: u64,
    /// It happens when it is counted; `time_ms` only selects its field.
    pub(super) stamped: bool,
    /// The hash of its counter's name.
    pub(super) id: [u8; ID_BYTES],
    pub(super) token: Packed,
    pub(super) change: Change,
    pub(super) bounds: Bounds,
}

const CLEAR: u8 = 1;
const STAMPED: u8 = 2;
/// Its delta is too large for sums that a Lua number holds exactly.
const WIDE: u8 = 4;
const WIDE_FROM: u64 = 1 << 51;
/// It has bounds: they follow its record.
const BOUNDED: u8 = 8;

/// Writes an item: what the script needs to place it, then its record up to the id, then its bounds. `next_field`: its field in the next
/// window; 0 where the caller gave the time.
pub(super) fn item(out: &mut Vec<u8>, item: &Item, field: u16, next_field: u16) {
    let (clear, delta) = match item.change {
        Change::Add(delta) => (0, delta),
        Change::Clear => (CLEAR, 0),
    };
    let stamped = if item.stamped { STAMPED } else { 0 };
    let wide = if delta.unsigned_abs() >= WIDE_FROM { WIDE } else { 0 };
    let bounded = if item.bounds.are_none() { 0 } else { BOUNDED };
    let bytes = delta.to_be_bytes();
    // The shortest bytes that read back as the same number: leading bytes that only repeat the sign are left out. A clear
    // has no delta.
    let sign = if delta < 0 { 0xff } else { 0 };
    let redundant = (0..7).take_while(|at| bytes[*at] == sign && (bytes[at + 1] ^ sign) < 0x80).count();
    let short = if clear == 0 { &bytes[redundant..] } else { &[] };
    let before_id = BEFORE_DELTA + short.len();

    put(out, field.into(), 2);
    put(out, next_field.into(), 2);
    put(out, item.counter.into(), 2);
    put(out, item.time_ms, 6);
    out.push(clear | stamped | wide | bounded);
    out.extend_from_slice(&bytes);
    out.push(before_id as u8);
    out.push((before_id - 1 + BEFORE_TOKEN + item.token.as_bytes().len()) as u8);
    out.push(short.len() as u8);
    out.extend_from_slice(short);
    if bounded != 0 {
        let Bounds { min, max } = item.bounds;
        out.extend_from_slice(&min.unwrap_or(i64::MIN).to_be_bytes());
        out.extend_from_slice(&max.unwrap_or(i64::MAX).to_be_bytes());
    }
}

/// Writes an item's id, with which its record ends: offset in the window, hash of the counter, token.
pub(super) fn id(out: &mut Vec<u8>, item: &Item) {
    put(out, item.time_ms % WINDOW_MS, 2);
    out.extend_from_slice(&item.id);
    out.extend_from_slice(item.token.as_bytes());
}

/// A record of a slot.
struct Record<'a> {
    offset: u64,
    id: &'a [u8],
    token: &'a [u8],
    change: Change,
}

/// The records of a slot, in the order in which they were appended.
fn records(mut slot: &[u8]) -> impl Iterator<Item = Result<Record<'_>, Refusal>> {
    std::iter::from_fn(move || {
        let (length, rest) = slot.split_first()?;
        let Some((record, more)) = rest.split_at_checked(usize::from(*length)) else {
            slot = &[];
            return Some(Err(defect("an unreadable slot of events")));
        };
        slot = more;
        Some(read_record(record).ok_or_else(|| defect("an unreadable slot of events")))
    })
}

fn read_record(record: &[u8]) -> Option<Record<'_>> {
    let (head, rest) = record.split_at_checked(BEFORE_DELTA - 1)?;
    let (delta, rest) = rest.split_at_checked(usize::from(head[0]))?;
    let (id, token) = rest.split_at_checked(BEFORE_TOKEN)?;
    let change = match delta.first() {
        None => Change::Clear,
        Some(first) => {
            let start: i64 = if *first >= 0x80 { -1 } else { 0 };
            Change::Add(delta.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
        }
    };
    Some(Record { offset: read(&id[..2]), id: &id[2..], token, change })
}

/// The sum of one counter's adds after an offset (`None`: of all its adds), in a slot of one window.
pub(super) fn sum_after(slot: &[u8], id: [u8; ID_BYTES], after: Option<u64>) -> Result<i128, Refusal> {
    let mut sum = 0;
    for record in records(slot) {
        let record = record?;
        if let Change::Add(delta) = record.change
            && record.id == id
            && after.is_none_or(|after| record.offset > after)
        {
            sum += i128::from(delta);
        }
    }
    Ok(sum)
}

/// Collects the events of one counter in a slot of one window.
pub(super) fn events(slot: &[u8], id: [u8; ID_BYTES], window: u64, into: &mut Vec<Event>) -> Result<(), Refusal> {
    for record in records(slot) {
        let Record { offset, id: of, token, change } = record?;
        if of == id {
            into.push(Event { time_ms: window * WINDOW_MS + offset, token: unpack(token)?, change });
        }
    }
    Ok(())
}

/// Passes every event in a slot of one window on, with the hash of its counter.
pub(super) fn all_events(slot: &[u8], window: u64, mut each: impl FnMut([u8; ID_BYTES], Event)) -> Result<(), Refusal> {
    for record in records(slot) {
        let Record { offset, id, token, change } = record?;
        let id = id.try_into().map_err(|_| defect("an unreadable slot of events"))?;
        each(id, Event { time_ms: window * WINDOW_MS + offset, token: unpack(token)?, change });
    }
    Ok(())
}

/// The number of events in a slot.
pub(super) fn count(slot: &[u8]) -> Result<usize, Refusal> {
    records(slot).try_fold(0, |count, record| record.map(|_| count + 1))
}

pub(super) fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHECKPOINT_BYTES + EPOCH_BYTES + CLEARED_BYTES);
    out.extend_from_slice(&checkpoint.count.to_be_bytes());
    put(&mut out, checkpoint.exact_to_ms, 6);
    put(&mut out, checkpoint.last_write_ms, 6);
    put(&mut out, checkpoint.lease.leased_at_ms, 6);
    put(&mut out, checkpoint.lease.fencing_token, 7);
    if checkpoint.is_deleted {
        out.push(DELETED_BYTE);
    } else if checkpoint.epoch != Epoch::default() || checkpoint.cleared_ms > 0 {
        out.extend_from_slice(&checkpoint.epoch.number.to_be_bytes());
        out.extend_from_slice(&checkpoint.epoch.adjusted.to_be_bytes());
    }
    if checkpoint.cleared_ms > 0 {
        put(&mut out, checkpoint.cleared_ms, CLEARED_BYTES);
    }
    out
}

/// What the scripts compare of a checkpoint (`counter/lib/home.lua`).
pub(super) fn stand_of(checkpoint: &Checkpoint) -> String {
    let epoch = match checkpoint.epoch {
        epoch if epoch == Epoch::default() => String::new(),
        epoch => format!(".{}", epoch.number),
    };
    let cleared = match checkpoint.cleared_ms {
        0 => String::new(),
        cleared_ms => format!("@{cleared_ms}"),
    };
    format!("{}{}{epoch}{cleared}", checkpoint.exact_to_ms, if checkpoint.is_deleted { "d" } else { "" })
}

/// What a new checkpoint passes, as `counter/lib/crossings.lua` takes it; empty: nothing.
pub(super) fn encode_crossing(after: &Checkpoint, thresholds: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    if !thresholds.is_empty() {
        out.extend_from_slice(&after.count.to_be_bytes());
        put(&mut out, after.exact_to_ms, 6);
        thresholds.iter().for_each(|threshold| out.extend_from_slice(&threshold.to_be_bytes()));
    }
    out
}

/// Its count, the time to which that is exact (Unix ms), and the thresholds.
pub(super) fn decode_crossing(raw: &[u8]) -> Option<(i64, u64, Vec<i64>)> {
    let (head, thresholds) = raw.split_at_checked(CROSSING_HEAD_BYTES)?;
    if thresholds.is_empty() || !thresholds.len().is_multiple_of(8) {
        return None;
    }
    let thresholds = thresholds.chunks_exact(8).map(|threshold| read(threshold) as i64).collect();
    Some((read(&head[..8]) as i64, read(&head[8..]), thresholds))
}

pub(super) fn decode_checkpoint(raw: &[u8]) -> Result<Checkpoint, Refusal> {
    let unreadable = || defect("an unreadable checkpoint");
    let tail = raw.get(CHECKPOINT_BYTES..).ok_or_else(unreadable)?;
    let has_cleared = [1 + CLEARED_BYTES, EPOCH_BYTES + CLEARED_BYTES].contains(&tail.len());
    let (tail, cleared) = tail.split_at(tail.len() - if has_cleared { CLEARED_BYTES } else { 0 });
    let (is_deleted, epoch) = match tail {
        [] => (false, Epoch::default()),
        [DELETED_BYTE] => (true, Epoch::default()),
        epoch if epoch.len() == EPOCH_BYTES => {
            let (number, adjusted) = epoch.split_at(4);
            (false, Epoch { number: read(number) as u32, adjusted: read(adjusted) as i64 })
        }
        _ => return Err(unreadable()),
    };
    Ok(Checkpoint {
        count: read(&raw[..8]) as i64,
        exact_to_ms: read(&raw[8..14]),
        last_write_ms: read(&raw[14..20]),
        lease: LeaseOrder { leased_at_ms: read(&raw[20..26]), fencing_token: read(&raw[26..33]) },
        is_deleted,
        epoch,
        cleared_ms: read(cleared),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Token;
    use crate::redis::token::pack;

    /// A record as the script builds it.
    fn record(of: &Item) -> Vec<u8> {
        let mut out = Vec::new();
        item(&mut out, of, 9, 0);
        out.drain(..22);
        id(&mut out, of);
        assert_eq!(usize::from(out[0]), out.len() - 1);
        out
    }

    #[test]
    fn n2_every_delta_reads_back_from_its_record() {
        let bounds = (0..64).flat_map(|bit| [1_i64 << bit, (1_i64 << bit).wrapping_sub(1), -(1_i64 << (bit % 63))]);
        let token = Token::parse("t").unwrap();
        for delta in bounds.chain([0, -1, -128, -129, 127, 128, i64::MIN, i64::MAX]) {
            let (id, change, bounds) = ([7; ID_BYTES], Change::Add(delta), Bounds::default());
            let record =
                &record(&Item { counter: 0, time_ms: 1_234, stamped: false, id, token: pack(&token), change, bounds });
            let twice = [&record[..], record].concat();
            assert_eq!(sum_after(&twice, id, None), Ok(2 * i128::from(delta)), "{delta}");
            assert_eq!(sum_after(record, id, Some(233)), Ok(i128::from(delta)));
            assert_eq!(sum_after(record, id, Some(234)), Ok(0), "not after its own time");
            assert_eq!(sum_after(record, [8; ID_BYTES], None), Ok(0), "another counter's");
            let mut events_read = Vec::new();
            events(record, id, 2, &mut events_read).unwrap();
            assert_eq!(events_read, [Event { time_ms: 1_234, token: token.clone(), change }]);
        }
    }

    #[test]
    fn n16_a_crossing_reads_back() {
        let after = Checkpoint { count: -5, exact_to_ms: 1_795_176_000_000, ..Checkpoint::default() };
        assert_eq!(encode_crossing(&after, &[]), b"");
        let raw = encode_crossing(&after, &[7, i64::MIN]);
        assert_eq!(decode_crossing(&raw), Some((-5, 1_795_176_000_000, vec![7, i64::MIN])));
        for bad in [&raw[..raw.len() - 1], &raw[..14], &[]] {
            assert_eq!(decode_crossing(bad), None);
        }
    }

    #[test]
    fn n7_a_checkpoint_reads_back() {
        let lease = LeaseOrder { leased_at_ms: 3, fencing_token: 1 << 50 };
        let recounted = Epoch { number: u32::MAX, adjusted: -7 };
        for (is_deleted, epoch) in [(false, Epoch::default()), (true, Epoch::default()), (false, recounted)] {
            for cleared_ms in [0, 1_795_176_000_000] {
                let (count, exact_to_ms, last_write_ms) = (-5, 1, 2);
                let checkpoint = Checkpoint { count, exact_to_ms, last_write_ms, lease, is_deleted, epoch, cleared_ms };
                let mut raw = encode_checkpoint(&checkpoint);
                assert_eq!(decode_checkpoint(&raw), Ok(checkpoint));
                raw.extend([DELETED_BYTE, DELETED_BYTE]);
                assert!(decode_checkpoint(&raw).is_err());
            }
        }
        assert!(decode_checkpoint(b"x").is_err());
    }
}
