//! The Rust side of the packed records. Their layouts are described in the scripts: `counter/lib/pending.lua`,
//! `counter/lib/slots.lua`, `counter/append.lua` and `counter/commit.lua`.

use super::calls::defect;
use super::token::{Packed, pack_text, unpack, unpack_text};
use crate::checkpoints::{Checkpoint, Epoch, LeaseOrder};
use crate::log::{Bounds, Change, Closed, Event, Labels, Pending, WINDOW_MS, Window};
use crate::names::TOKEN_BYTES_MAX;
use crate::refusal::Refusal;
use std::ops::Range;
use tallystone_lua::counter::{
    CHECKPOINT_BYTES, CLEARED_BYTES, CLOSED_DOWN, CLOSED_UP, DELETED_BYTE, EPOCH_BYTES, HAS_OLDER, PENDING_HEAD_BYTES,
};
use tallystone_model::limits::LABEL_BYTES_MAX;

const ENTRY_BYTES: usize = 27;
/// The numbers of the first and the last chunk, at the end of a pending record.
const CHUNKS_BYTES: usize = 4 + 4;
const ID_BYTES: usize = 12;
/// The count and the time to which it is exact.
const CROSSING_HEAD_BYTES: usize = 8 + 6;
/// The length of the rest and the length of the delta, one byte each.
const BEFORE_DELTA: usize = 1 + 1;
/// The offset in the window and the counter's hash.
const BEFORE_TOKEN: usize = 2 + ID_BYTES;
/// A delta in full. What is before it in the delta of a record are labels.
const DELTA_BYTES: usize = 8;
/// With the length of the source.
const LABELS_BYTES_MAX: usize = 1 + 2 * LABEL_BYTES_MAX;
// The length of a record is one byte. Labels are packed as tokens are.
const _: () = assert!(1 + LABELS_BYTES_MAX + DELTA_BYTES + BEFORE_TOKEN + TOKEN_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(LABEL_BYTES_MAX <= TOKEN_BYTES_MAX);

/// A big-endian number of up to eight bytes.
pub(super) fn read(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// Reads a pending record; an empty one says that nothing is pending. Returns also the numbers of its chunks, which have the
/// windows before those of the record.
pub(super) fn pending(raw: &[u8]) -> Result<(Pending, Range<u64>), Refusal> {
    if raw.is_empty() {
        return Ok((Pending::default(), 0..0));
    }
    let (head, rest) =
        raw.split_at_checked(PENDING_HEAD_BYTES).ok_or_else(|| defect("an unreadable pending record"))?;
    let has_chunks = rest.len() % ENTRY_BYTES == CHUNKS_BYTES;
    let (entries, numbers) = rest.split_at(rest.len() - if has_chunks { CHUNKS_BYTES } else { 0 });
    let chunks = match numbers.split_at_checked(4) {
        Some((first, last)) => read(first)..read(last) + 1,
        None => 0..0,
    };
    let closed = match head[6] % HAS_OLDER {
        CLOSED_UP => Closed::Up,
        CLOSED_DOWN => Closed::Down,
        _ => Closed::No,
    };
    Ok((Pending { last_write_ms: read(&head[..6]), closed, windows: windows(entries)? }, chunks))
}

/// The time of the latest add of a pending record, in Unix ms, as far as its field has it: older windows may be in another
/// field. `None`: it has none.
pub(super) fn last_add_ms(raw: &[u8]) -> Result<Option<u64>, Refusal> {
    let last_ms = |window: &Window| window.adds_ms.map(|(_, last_ms)| last_ms);
    Ok(pending(raw)?.0.windows.iter().filter_map(last_ms).max())
}

/// Reads the windows of a pending record, or those of a chunk.
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
pub(super) struct Item<'a> {
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
    /// Of an add.
    pub(super) labels: &'a Labels,
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
pub(super) fn item(out: &mut Vec<u8>, item: &Item<'_>, field: u16, next_field: u16) {
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
    let labels = (clear == 0 && !item.labels.are_none()).then(|| packed(item.labels));
    let short = match (clear, &labels) {
        (CLEAR, _) => &[],
        (_, Some(_)) => &bytes[..],
        (_, None) => &bytes[redundant..],
    };
    let delta_length = short.len() + labels.as_ref().map_or(0, |(source, key)| 1 + source.len() + key.len());
    let before_id = BEFORE_DELTA + delta_length;

    put(out, field.into(), 2);
    put(out, next_field.into(), 2);
    put(out, item.counter.into(), 2);
    put(out, item.time_ms, 6);
    out.push(clear | stamped | wide | bounded);
    out.extend_from_slice(&bytes);
    out.push(before_id as u8);
    out.push((before_id - 1 + BEFORE_TOKEN + item.token.as_bytes().len()) as u8);
    out.push(delta_length as u8);
    if let Some((source, key)) = labels {
        out.push(source.len() as u8);
        out.extend_from_slice(source.as_bytes());
        out.extend_from_slice(key.as_bytes());
    }
    out.extend_from_slice(short);
    if bounded != 0 {
        let Bounds { min, max } = item.bounds;
        out.extend_from_slice(&min.unwrap_or(i64::MIN).to_be_bytes());
        out.extend_from_slice(&max.unwrap_or(i64::MAX).to_be_bytes());
    }
}

/// The source and the item key.
fn packed(labels: &Labels) -> (Packed, Packed) {
    (pack_text(labels.source()), pack_text(labels.event_item_key()))
}

/// The labels before a delta; no bytes: it has none.
fn labels(packed: &[u8]) -> Result<Labels, Refusal> {
    let Some((length, rest)) = packed.split_first() else { return Ok(Labels::default()) };
    let unreadable = || defect("unreadable labels of an event");
    let (source, key) = rest.split_at_checked(usize::from(*length)).ok_or_else(unreadable)?;
    let text = |packed: &[u8]| if packed.is_empty() { Ok(String::new()) } else { unpack_text(packed) };
    Labels::parse(text(source)?, text(key)?)
}

/// Writes an item's id, with which its record ends: offset in the window, hash of the counter, token.
pub(super) fn id(out: &mut Vec<u8>, item: &Item<'_>) {
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
    /// Packed; empty: it has none.
    labels: &'a [u8],
}

impl Record<'_> {
    /// The event, in this window.
    fn event(&self, window: u64) -> Result<Event, Refusal> {
        let (time_ms, change) = (window * WINDOW_MS + self.offset, self.change);
        Ok(Event { time_ms, token: unpack(self.token)?, change, labels: labels(self.labels)? })
    }
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
    let (labels, delta) = delta.split_at(delta.len().saturating_sub(DELTA_BYTES));
    let (id, token) = rest.split_at_checked(BEFORE_TOKEN)?;
    let change = match delta.first() {
        None => Change::Clear,
        Some(first) => {
            let start: i64 = if *first >= 0x80 { -1 } else { 0 };
            Change::Add(delta.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
        }
    };
    Some(Record { offset: read(&id[..2]), id: &id[2..], token, change, labels })
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
        let record = record?;
        if record.id == id {
            into.push(record.event(window)?);
        }
    }
    Ok(())
}

/// Passes every event in a slot of one window on, with the hash of its counter.
pub(super) fn all_events(slot: &[u8], window: u64, mut each: impl FnMut([u8; ID_BYTES], Event)) -> Result<(), Refusal> {
    for record in records(slot) {
        let record = record?;
        let id = record.id.try_into().map_err(|_| defect("an unreadable slot of events"))?;
        each(id, record.event(window)?);
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

    /// An event of a test in window 2, as it is put into the log.
    fn written(token: &Token, change: Change, labels: &Labels) -> Vec<u8> {
        let (id, bounds) = ([7; ID_BYTES], Bounds::default());
        record(&Item { counter: 0, time_ms: 1_234, stamped: false, id, token: pack(token), change, bounds, labels })
    }

    fn read_back(record: &[u8]) -> Vec<Event> {
        let mut read = Vec::new();
        events(record, [7; ID_BYTES], 2, &mut read).unwrap();
        read
    }

    const DELTAS: [i64; 12] = [0, 1, -1, -128, -129, 127, 128, 255, 1 << 40, -(1 << 55), i64::MIN, i64::MAX];

    #[test]
    fn n2_every_delta_reads_back_from_its_record() {
        let bounds = (0..64).flat_map(|bit| [1_i64 << bit, (1_i64 << bit).wrapping_sub(1), -(1_i64 << (bit % 63))]);
        let token = Token::parse("t").unwrap();
        for delta in bounds.chain(DELTAS) {
            let (id, change) = ([7; ID_BYTES], Change::Add(delta));
            let record = &written(&token, change, &Labels::default());
            let twice = [&record[..], record].concat();
            assert_eq!(sum_after(&twice, id, None), Ok(2 * i128::from(delta)), "{delta}");
            assert_eq!(sum_after(record, id, Some(233)), Ok(i128::from(delta)));
            assert_eq!(sum_after(record, id, Some(234)), Ok(0), "not after its own time");
            assert_eq!(sum_after(record, [8; ID_BYTES], None), Ok(0), "another counter's");
            let labels = Labels::default();
            assert_eq!(read_back(record), [Event { time_ms: 1_234, token: token.clone(), change, labels }]);
        }
    }

    /// As servers before N20 read it.
    fn delta_of_earlier_version(record: &[u8]) -> i64 {
        let delta = &record[2..2 + usize::from(record[1])];
        let start: i64 = if delta[0] >= 0x80 { -1 } else { 0 };
        delta.iter().fold(start, |number, byte| number << 8 | i64::from(*byte))
    }

    #[test]
    fn n20_labels_read_back_and_change_no_delta_of_an_earlier_version() {
        let (long, uuid) = ("x".repeat(64), "0198f6a2-7d3c-7b1e-9f20-5a6b7c8d9e0f");
        let texts = ["", "a", "eu", "77012", uuid, "ü", long.as_str()];
        for (source, key) in texts.iter().flat_map(|source| texts.map(|key| (*source, key))) {
            let labels = Labels::parse(source, key).unwrap();
            let tokens = [long.as_str(), "t"].into_iter();
            for (token, delta) in tokens.flat_map(|token| DELTAS.map(|delta| (token, delta))) {
                let (token, change) = (Token::parse(token).unwrap(), Change::Add(delta));
                let record = written(&token, change, &labels);
                assert_eq!(delta_of_earlier_version(&record), delta, "{labels:?}");
                let labels = labels.clone();
                assert_eq!(read_back(&record), [Event { time_ms: 1_234, token, change, labels }]);
            }
        }
    }

    #[test]
    fn n20_an_add_without_labels_takes_no_more_bytes_than_before() {
        let token = Token::parse("t").unwrap();
        let bytes = |change, labels: &Labels| written(&token, change, labels);
        let id = [&234_u16.to_be_bytes()[..], &[7; ID_BYTES], b"t"].concat();
        let one = [&[17, 1, 5][..], &id].concat();
        assert_eq!(bytes(Change::Add(5), &Labels::default()), one);
        let labels = Labels::parse("eu", "0198f6a2-7d3c-7b1e-9f20-5a6b7c8d9e0f").unwrap();
        assert_eq!(bytes(Change::Add(5), &labels).len(), one.len() + 7 + 1 + 2 + 17);
        let clear = [&[16, 0][..], &id].concat();
        assert_eq!(bytes(Change::Clear, &labels), clear, "a clear has none");
    }

    #[test]
    fn n20_unreadable_labels_are_refused() {
        let token = Token::parse("t").unwrap();
        let good = written(&token, Change::Add(5), &Labels::parse("eu", "k").unwrap());
        // The length of the source; bytes that are no text.
        for (at, byte) in [(2, 4), (2, 255), (3, 0xff), (4, 0x07)] {
            let mut bad = good.clone();
            bad[at] = byte;
            let mut read = Vec::new();
            assert!(events(&bad, [7; ID_BYTES], 2, &mut read).is_err(), "{byte} at {at}: {read:?}");
        }
    }

    #[test]
    fn n5_a_pending_record_has_the_numbers_of_its_chunks_behind_its_windows() {
        let head = [&[0; 6][..], &[CLOSED_UP + HAS_OLDER], &[0; PENDING_HEAD_BYTES - 7]].concat();
        let entry = [&[0, 0, 0, 0, 9][..], &[0; ENTRY_BYTES - 5]].concat();
        let read_back = |tail: &[u8]| pending(&[&head[..], &entry, &entry, tail].concat());
        let (record, chunks) = read_back(&[]).unwrap();
        assert_eq!((record.closed, record.windows.len(), record.windows[1].number), (Closed::Up, 2, 9));
        assert!(chunks.is_empty());
        let (with_chunks, chunks) = read_back(&[0, 0, 0, 3, 0, 0, 1, 0]).unwrap();
        assert_eq!((with_chunks, chunks), (record, 3..257));
        assert_eq!(pending(&[]), Ok((Pending::default(), 0..0)));
        for bad in [7, 9, 26] {
            assert!(read_back(&vec![0; bad]).is_err(), "{bad} bytes");
        }
        assert!(pending(&head[1..]).is_err());
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
