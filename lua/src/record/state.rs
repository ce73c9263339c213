//! The state of a shard.

use super::reader::{Reader, Unreadable};

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
    Ok(ShardState { revision, sequence, counts, created_at_ms, added: reader.number(7)?, acked: reader.number(7)? })
}
