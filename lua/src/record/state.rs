//! The state of a shard.

use super::reader::{Reader, Unreadable};
use crate::constants::FAR_MS;
#[cfg(test)]
use crate::constants::STATE_LAYOUT;

/// What a timeline behind the layout begins with; `lib/timeline.lua` has it. No server's id begins so.
const TIMELINE_FOLLOWS: u8 = 1;
/// The same, with leases of earlier timelines that have not ended.
const TIMELINE_WITH_LEASES: u8 = 2;

/// The fields of a shard's state that Rust reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// The revision of the configuration.
    pub revision: u32,
    /// The last number of the shard's sequence.
    pub sequence: u64,
    /// The number of messages by state, in the order of the states' numbers.
    pub counts: [u64; 6],
    /// When the queue was created: Unix ms.
    pub created_at_ms: u64,
    /// The offset of the next event.
    pub added: u64,
    /// The offset of the first event that no sink has acknowledged.
    pub acked: u64,
    /// The sequence at which the shard's timeline began; 0: with the queue. It exceeds every number that was handed out
    /// before (`lib/timeline.lua`).
    pub timeline_begin: u64,
}

/// Decodes the state record; `lib/shard.lua` has its layout.
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
    let (added, acked) = (reader.number(7)?, reader.number(7)?);
    let timeline_begin = read_timeline(&mut reader)?;
    Ok(ShardState { revision, sequence, counts, created_at_ms, added, acked, timeline_begin })
}

/// The start of the timeline, if the state has one.
fn read_timeline(reader: &mut Reader<'_>) -> Result<u64, Unreadable> {
    let kind = reader.0.first().copied();
    if ![Some(TIMELINE_FOLLOWS), Some(TIMELINE_WITH_LEASES)].contains(&kind) {
        return Ok(0);
    }
    let _which = reader.bytes(1 + 4)?;
    let begin = reader.number(7)?;
    let _began_at_ms = reader.number(6)?;
    if kind == Some(TIMELINE_WITH_LEASES) {
        let _leases_behind_ms_until = reader.bytes(4 + 6)?;
    }
    Ok(begin)
}

/// The fields of a shard's state that say what happens without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMarks<'a> {
    /// Until when the mark of waiting servers is valid: Unix ms; 0: no server is marked.
    pub wait_until_ms: u64,
    /// When the sweeper is to act next: Unix ms; `None`: never.
    pub sweep_at_ms: Option<u64>,
    /// The id of the waiting server; `*`: every server.
    pub waiter: &'a [u8],
}

/// Decodes the marks of a state record; `lib/shard.lua` has its layout.
pub fn decode_marks(raw: &[u8]) -> Result<ShardMarks<'_>, Unreadable> {
    let mut reader = Reader(raw);
    let _revision_sequence_counts = reader.bytes(4 + 7 + 6 * 6)?;
    let (wait_until_ms, sweep_at_ms) = (reader.number(6)?, reader.number(6)?);
    let _parked_popped_created_added_acked = reader.bytes(4 + 6 + 6 + 7 + 7)?;
    let sweep_at_ms = Some(sweep_at_ms).filter(|at_ms| *at_ms < FAR_MS);
    read_timeline(&mut reader)?;
    Ok(ShardMarks { wait_until_ms, sweep_at_ms, waiter: reader.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_where_the_layout_has_them() {
        let mut raw = vec![7; 4 + 7 + 6 * 6];
        raw.extend(&5_000_u64.to_be_bytes()[2..]);
        raw.extend(&6_000_u64.to_be_bytes()[2..]);
        raw.extend([9; 4 + 6 + 6 + 7 + 7]);
        let widths = STATE_LAYOUT.split('I').skip(1).map(|width| width.parse::<usize>().unwrap());
        assert_eq!(raw.len(), widths.sum::<usize>());
        raw.extend(b"server");
        let marks = ShardMarks { wait_until_ms: 5_000, sweep_at_ms: Some(6_000), waiter: b"server" };
        assert_eq!(decode_marks(&raw), Ok(marks));
        let timeline = [1, 0xAA, 0xBB, 0xCC, 0xDD, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 8];
        let end = raw.len() - b"server".len();
        raw.splice(end..end, timeline);
        assert_eq!(decode_marks(&raw), Ok(marks), "behind a timeline");
        assert_eq!(decode_state(&raw).map(|state| state.timeline_begin), Ok(9));
        let mut with_leases = raw.clone();
        with_leases[end] = 2;
        with_leases.splice(end + 18..end + 18, [0, 0, 0, 5, 0, 0, 0, 0, 0, 6]);
        assert_eq!(decode_marks(&with_leases), Ok(marks), "behind a timeline with leases");
        assert_eq!(decode_state(&with_leases).map(|state| state.timeline_begin), Ok(9));
        raw[53..59].copy_from_slice(&FAR_MS.to_be_bytes()[2..]);
        assert_eq!(decode_marks(&raw), Ok(ShardMarks { sweep_at_ms: None, ..marks }));
        assert!(decode_marks(&raw[..60]).is_err());
    }
}
