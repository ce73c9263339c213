//! Records with a checksum, and the fields in them. A record is its length, the CRC-32C of its content, and the content; numbers are
//! little-endian.

/// Bytes before the content.
pub(super) const HEAD_BYTES: usize = 8;

/// The record with this content.
pub(super) fn record(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("the bounds on names and slots keep records below 4 GiB");
    let mut record = Vec::with_capacity(HEAD_BYTES + content.len());
    record.extend(length.to_le_bytes());
    record.extend(crc32c::crc32c(content).to_le_bytes());
    record.extend(content);
    record
}

/// The contents of the records at the beginning of a file.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    /// Where the next record begins.
    pub(super) at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Records { bytes, at: 0 }
    }

    /// What is after the last valid record, once the iterator has ended. No content may be longer than `content_max`, or end in a zero. Each
    /// damage of one bit is found. A record whose length was changed, and its content or checksum, too, may look torn.
    pub(super) fn end(&self, content_max: usize) -> End {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return End::Whole;
        }
        // After a loss of power, zeros may be in the place of what was not written.
        let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut head = Fields::new(rest);
        let (1.., Some(length), Some(checksum)) = (written, head.u32(), head.u32()) else { return End::Torn };
        let (content, length) = (&rest[HEAD_BYTES..written.max(HEAD_BYTES)], length as usize);
        let is_beyond = length > content.len() && length <= content_max;
        // If the checksum fits a part of the rest, the content is complete, and its length was changed.
        let is_complete = || (1..=content.len()).any(|end| crc32c::crc32c(&content[..end]) == checksum);
        if is_beyond && !is_complete() { End::Torn } else { End::Damaged }
    }
}

/// What is after the valid records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing.
    Whole,
    /// The beginning of a record.
    Torn,
    /// What was not written like this.
    Damaged,
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    /// `None` at the end, or where no valid record begins. No valid record is empty: zeros would be one.
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut head = Fields::new(self.bytes.get(self.at..)?);
        let (length, checksum) = (head.u32()?, head.u32()?);
        let begin = self.at + HEAD_BYTES;
        let content = self.bytes.get(begin..begin.checked_add(length as usize)?)?;
        if content.is_empty() || crc32c::crc32c(content) != checksum {
            return None;
        }
        self.at = begin + content.len();
        Some(content)
    }
}

/// Reads the fields of a content.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Fields { rest: content }
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.bytes(8)?.try_into().ok().map(i64::from_le_bytes)
    }

    /// A text of at most 255 bytes.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        std::str::from_utf8(self.bytes(length.into())?).ok()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Appends a text of at most 255 bytes; a longer one is cut, which the bounds on names rule out.
pub(super) fn put_text(content: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(255)];
    content.push(bytes.len() as u8);
    content.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_a_damaged_or_torn_record_ends_the_records() {
        let mut bytes = [record(b"first"), record(b"second")].concat();
        let all = |bytes: &[u8]| Records::new(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(all(&bytes), [&b"first"[..], b"second"]);
        for length in 0..bytes.len() {
            assert_eq!(all(&bytes[..length]).len(), usize::from(length >= HEAD_BYTES + 5));
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(all(&bytes).len() < 2, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn l2_a_torn_record_differs_from_a_damaged_one() {
        let mut bytes = [record(b"first"), record(b"second")].concat();
        let end = |bytes: &[u8]| {
            let mut records = Records::new(bytes);
            while records.next().is_some() {}
            records.end(1_000)
        };
        let first = HEAD_BYTES + 5;
        for length in 0..=bytes.len() {
            let expected = if [0, first, bytes.len()].contains(&length) { End::Whole } else { End::Torn };
            assert_eq!(end(&bytes[..length]), expected, "{length} bytes");
            let zeros = [&bytes[..length], &[0; 40]].concat();
            assert_eq!(end(&zeros), End::Torn, "{length} bytes and zeros");
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(end(&bytes), End::Damaged, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let long = record(&[7; 1_001]);
        assert_eq!(end(&long[..1_000]), End::Damaged, "no content is so long");
    }

    #[test]
    fn l2_fields_end_where_their_content_ends() {
        let mut content = vec![7];
        put_text(&mut content, "cats");
        let mut fields = Fields::new(&content);
        assert_eq!((fields.u8(), fields.text()), (Some(7), Some("cats")));
        assert!(fields.is_at_end() && fields.u32().is_none());
    }
}
