//! The immutable part of a message: `fixed` and the payload.

use super::reader::{Reader, Unreadable, push_short};
use std::collections::BTreeMap;
use tallystone_model::message::NewMessage;
use tallystone_model::{Metadata, PriorityClass};

const LEASE_FLAG: u8 = 1;
const INVISIBILITY_FLAG: u8 = 2;
const ATTEMPTS_FLAG: u8 = 4;
const CLASS_FLAG: u8 = 8;

/// Eight bytes that sort like the numbers: big-endian with the sign bit flipped (Q3).
pub fn encode_priority(priority: i64) -> [u8; 8] {
    ((priority as u64) ^ (1 << 63)).to_be_bytes()
}

/// Decodes what a script answers as a priority; empty: none.
pub fn read_priority(bytes: &[u8]) -> Result<Option<i64>, Unreadable> {
    match bytes {
        [] => Ok(None),
        bytes => Ok(Some(decode_priority(Reader(bytes).number(8)?))),
    }
}

fn decode_priority(bytes: u64) -> i64 {
    (bytes ^ (1 << 63)) as i64
}

/// Appends the content of a message: `fixed`, then the payload. In an exclusive queue the exclusivity pair comes first. The
/// priority of a message of a class is the offset of the class: `enqueue` adds the time.
pub fn encode_content(
    message: &NewMessage,
    class: Option<PriorityClass<'_>>,
    exclusivity_key: Option<&str>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&encode_priority(class.map_or(message.priority, |class| class.offset_ms)));
    let length_at = out.len();
    out.extend_from_slice(&[0, 0]);
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    let flags = flag(message.lease_ms.is_some(), LEASE_FLAG)
        | flag(message.invisibility_ms.is_some(), INVISIBILITY_FLAG)
        | flag(message.max_attempts.is_some(), ATTEMPTS_FLAG)
        | flag(class.is_some(), CLASS_FLAG);
    let pairs = message.metadata.pairs();
    if flags != 0 || !pairs.is_empty() {
        out.push(flags);
        if let Some(lease_ms) = message.lease_ms {
            out.extend_from_slice(&(lease_ms as u32).to_be_bytes());
        }
        if let Some(invisibility_ms) = message.invisibility_ms {
            out.extend_from_slice(&invisibility_ms.to_be_bytes()[2..]);
        }
        if let Some(max_attempts) = message.max_attempts {
            out.extend_from_slice(&(max_attempts as u16).to_be_bytes());
        }
        if let Some(class) = class {
            push_short(out, class.name.as_bytes());
        }
        let first = exclusivity_key.and_then(|key| pairs.get_key_value(key));
        let rest = pairs.iter().filter(|(key, _)| Some(key.as_str()) != exclusivity_key);
        for (key, value) in first.into_iter().chain(rest) {
            push_short(out, key.as_bytes());
            push_short(out, value.as_bytes());
        }
    }
    let length = (out.len() - length_at - 2) as u16;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message.payload);
}

/// The fields of `fixed`.
pub(super) struct Fixed {
    pub(super) priority: i64,
    pub(super) lease_ms: Option<u64>,
    pub(super) invisibility_ms: Option<u64>,
    pub(super) max_attempts: Option<u32>,
    pub(super) priority_class: Option<String>,
    pub(super) metadata: Metadata,
}

impl Fixed {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Fixed, Unreadable> {
        let priority = decode_priority(reader.number(8)?);
        let length = reader.number(2)? as usize;
        let mut rest = Reader(reader.bytes(length)?);
        let flags = if rest.0.is_empty() { 0 } else { rest.number(1)? as u8 };
        let mut option = |flag: u8, n: usize| (flags & flag != 0).then(|| rest.number(n)).transpose();
        let lease_ms = option(LEASE_FLAG, 4)?;
        let invisibility_ms = option(INVISIBILITY_FLAG, 6)?;
        let max_attempts = option(ATTEMPTS_FLAG, 2)?.map(|n| n as u32);
        let priority_class = (flags & CLASS_FLAG != 0).then(|| rest.text()).transpose()?;
        let mut pairs = BTreeMap::new();
        while !rest.0.is_empty() {
            let key = rest.text()?;
            pairs.insert(key, rest.text()?);
        }
        let metadata = Metadata::parse(pairs).map_err(|_| Unreadable("metadata"))?;
        Ok(Fixed { priority, lease_ms, invisibility_ms, max_attempts, priority_class, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q3_priorities_sort_as_bytes_over_the_whole_range() {
        let all = [i64::MIN, i64::MIN + 1, -1, 0, 1, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
        for pair in all.windows(2) {
            assert!(encode_priority(pair[0]) < encode_priority(pair[1]));
        }
        for priority in all {
            assert_eq!(decode_priority(u64::from_be_bytes(encode_priority(priority))), priority);
        }
    }
}
