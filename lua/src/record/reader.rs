//! Reading and writing the fields of a record.

use tallystone_model::State;

/// A record that cannot be decoded: a defect, or a key of another program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record: {0}")]
pub struct Unreadable(pub &'static str);

/// Reads big-endian fields from the front of a record.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Unreadable> {
        if self.0.len() < n {
            return Err(Unreadable("too short"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn number(&mut self, n: usize) -> Result<u64, Unreadable> {
        Ok(self.bytes(n)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    pub(super) fn short(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.number(1)? as usize;
        self.bytes(length)
    }

    pub(super) fn text(&mut self) -> Result<String, Unreadable> {
        String::from_utf8(self.short()?.to_vec()).map_err(|_| Unreadable("text"))
    }

    pub(super) fn state(&mut self) -> Result<Option<State>, Unreadable> {
        match self.number(1)? as u8 {
            0 => Ok(None),
            code => State::from_code(code).map(Some).ok_or(Unreadable("state")),
        }
    }
}

/// Appends bytes behind their length, which takes one byte.
pub(super) fn push_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}
