//! Packed arguments.

use std::fmt;

/// Ids of one command at most; of `CT.PINCRBY`, increments.
pub const IDS_MAX: usize = 512;
/// Bytes of a packed increment: id (u64), number of the field (u8), delta (i32).
const INCREMENT_BYTES: usize = 13;
/// Bytes of an item of `CT.PSETNEWER`: id (u64), value (i64), time (u64).
const NEWER_BYTES: usize = 24;

/// More ids than a command may have ([`IDS_MAX`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a command has at most {IDS_MAX} ids")
    }
}

impl std::error::Error for TooMany {}

/// Increments for `CT.PINCRBY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Increments {
    bytes: Vec<u8>,
}

impl Increments {
    /// None yet.
    pub fn new() -> Increments {
        Increments::default()
    }

    /// Adds an increment. The number of a field is its place in the order in which fields were created, from 0, retired ones included.
    ///
    /// # Errors
    /// There are [`IDS_MAX`] of them already; nothing was added.
    pub fn push(&mut self, id: u64, field: u8, delta: i32) -> Result<(), TooMany> {
        if self.is_full() {
            return Err(TooMany);
        }
        self.bytes.extend_from_slice(&id.to_le_bytes());
        self.bytes.push(field);
        self.bytes.extend_from_slice(&delta.to_le_bytes());
        Ok(())
    }

    /// The number of increments.
    pub fn len(&self) -> usize {
        self.bytes.len() / INCREMENT_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a command has no room for more.
    pub fn is_full(&self) -> bool {
        self.len() == IDS_MAX
    }

    /// The packed argument.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all of them, and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Values with their times, for `CT.PSETNEWER`: each is stored where its time is greater than the one that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewerValues {
    bytes: Vec<u8>,
}

impl NewerValues {
    /// None yet.
    pub fn new() -> NewerValues {
        NewerValues::default()
    }

    /// Adds a value. The store refuses times from 2^63 on.
    ///
    /// # Errors
    /// There are [`IDS_MAX`] of them already; nothing was added.
    pub fn push(&mut self, id: u64, value: i64, time: u64) -> Result<(), TooMany> {
        if self.len() == IDS_MAX {
            return Err(TooMany);
        }
        for word in [id.to_le_bytes(), value.to_le_bytes(), time.to_le_bytes()] {
            self.bytes.extend_from_slice(&word);
        }
        Ok(())
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.bytes.len() / NEWER_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The packed argument.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The packed argument of `CT.PGET`.
///
/// # Errors
/// There are more than [`IDS_MAX`] ids.
pub fn pack_ids(ids: &[u64]) -> Result<Vec<u8>, TooMany> {
    if ids.len() > IDS_MAX {
        return Err(TooMany);
    }
    Ok(ids.iter().flat_map(|id| id.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_packed_arguments_are_little_endian_and_bounded() {
        let mut increments = Increments::new();
        increments.push(0x0102, 3, -2).unwrap();
        assert_eq!(increments.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 3, 0xfe, 0xff, 0xff, 0xff]);
        while !increments.is_full() {
            increments.push(1, 0, 1).unwrap();
        }
        assert_eq!((increments.len(), increments.push(1, 0, 1)), (IDS_MAX, Err(TooMany)));
        let mut newer = NewerValues::new();
        newer.push(1, -1, 2).unwrap();
        assert_eq!((newer.len(), newer.as_bytes()[8], newer.as_bytes()[16]), (1, 0xff, 2));
        assert_eq!(pack_ids(&vec![0; IDS_MAX + 1]), Err(TooMany));
    }
}
