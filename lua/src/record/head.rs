//! The mutable part of a message.

use super::reader::{Reader, Unreadable};
use tallystone_model::State;

/// The bytes before the worker.
const HEAD_BYTES: usize = 64;

/// The fields of a head, without `fixed`.
pub(super) struct Head {
    pub(super) state: State,
    pub(super) version: u32,
    pub(super) since_ms: u64,
    pub(super) due_ms: u64,
    pub(super) flags: u8,
    pub(super) attempts: u32,
    pub(super) fencing_token: u64,
    pub(super) sequence: u64,
    pub(super) enqueued_at_ms: u64,
    pub(super) worker: String,
    pub(super) reason: String,
}

impl Head {
    /// The head of a message without one: pending at version 1.
    pub(super) fn absent(sequence: u64, enqueued_at_ms: u64) -> Head {
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

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Head, Unreadable> {
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
