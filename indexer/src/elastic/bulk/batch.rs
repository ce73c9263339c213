//! One bulk request: its lines, and which of them belong to which write.

use bytes::{Bytes, BytesMut};
use std::ops::Range;

/// One request.
pub(super) struct BulkBatch {
    pub(super) lines: Bytes,
    pub(super) writes: Vec<BulkWrite>,
}

/// One write of a request.
#[derive(Clone)]
pub(super) struct BulkWrite {
    /// The caller's number for it.
    pub(super) number: usize,
    /// Its bytes in the lines of the request.
    pub(super) lines: Range<usize>,
}

/// A write that the server will never accept.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::elastic) struct RefusedWrite {
    pub(in crate::elastic) number: usize,
    pub(in crate::elastic) why: String,
}

impl BulkBatch {
    /// Two batches of half the writes each; `Err`: the number of the only write.
    pub(super) fn split(self) -> Result<[BulkBatch; 2], usize> {
        let (left, right) = self.writes.split_at(self.writes.len() / 2);
        match (left, right) {
            ([], [only]) => Err(only.number),
            _ => Ok([self.only(left), self.only(right)]),
        }
    }

    /// A batch of only these writes.
    pub(super) fn only(&self, writes: &[BulkWrite]) -> BulkBatch {
        let mut lines = BytesMut::new();
        let writes = writes.iter().map(|write| {
            let begin = lines.len();
            lines.extend_from_slice(&self.lines[write.lines.clone()]);
            BulkWrite { number: write.number, lines: begin..lines.len() }
        });
        let writes = writes.collect();
        BulkBatch { lines: lines.freeze(), writes }
    }
}
