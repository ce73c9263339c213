//! Tokens and labels as records store them. Most are numbers in hex or decimal digits, often UUIDs: packed, they take half
//! the bytes.

use super::calls::defect;
use crate::names::{TOKEN_BYTES_MAX, Token};
use crate::refusal::Refusal;

/// The first byte of a packed token: an even number of hex digits. No text begins with it: texts have no control
/// characters.
const HEX: u8 = 1;
/// An odd number of hex digits: the last one is alone in its byte.
const HEX_ODD: u8 = 2;
/// A UUID: 8-4-4-4-12 hex digits.
const UUID: u8 = 3;
const UUID_BYTES: usize = 16;
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];
/// The shortest text that packing makes shorter.
const HEX_DIGITS_MIN: usize = 4;

/// A token or a label as a record holds it.
pub(super) struct Packed {
    bytes: [u8; TOKEN_BYTES_MAX],
    length: usize,
}

impl Packed {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
}

/// Packs a token. Each packed token reads back, so two tokens with the same bytes are the same token.
pub(super) fn pack(token: &Token) -> Packed {
    pack_text(token.as_str())
}

/// Packs a text of at most [`TOKEN_BYTES_MAX`] bytes, as [`pack`] does.
pub(super) fn pack_text(text: &str) -> Packed {
    let text = text.as_bytes();
    let mut packed = Packed { bytes: [0; TOKEN_BYTES_MAX], length: 0 };
    let Some(kind) = kind(text) else {
        packed.bytes[..text.len()].copy_from_slice(text);
        packed.length = text.len();
        return packed;
    };
    packed.push(kind);
    let mut high = None;
    for digit in text.iter().filter_map(digit) {
        match high.take() {
            None => high = Some(digit << 4),
            Some(high) => packed.push(high | digit),
        }
    }
    if let Some(high) = high {
        packed.push(high);
    }
    packed
}

/// The token of these bytes.
pub(super) fn unpack(packed: &[u8]) -> Result<Token, Refusal> {
    Token::parse(unpack_text(packed)?)
}

/// The text of these bytes, of which there is at least one.
pub(super) fn unpack_text(packed: &[u8]) -> Result<String, Refusal> {
    let unreadable = || defect("bytes for a token");
    let (kind, rest) = packed.split_first().ok_or_else(unreadable)?;
    let mut digits =
        rest.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16));
    Ok(match *kind {
        HEX => digits.collect(),
        HEX_ODD => digits.by_ref().take((2 * rest.len()).saturating_sub(1)).collect(),
        UUID if rest.len() == UUID_BYTES => {
            let mut text: String = digits.collect();
            UUID_DASHES.into_iter().for_each(|at| text.insert(at, '-'));
            text
        }
        _ => String::from_utf8(packed.to_vec()).map_err(|_| unreadable())?,
    })
}

/// How to pack a text, if that makes it shorter.
fn kind(text: &[u8]) -> Option<u8> {
    let is_dash = |at: usize| UUID_DASHES.contains(&at);
    let is_uuid = || text.iter().enumerate().all(|(at, byte)| if is_dash(at) { *byte == b'-' } else { is_digit(byte) });
    match text.len() {
        36 if is_uuid() => Some(UUID),
        HEX_DIGITS_MIN.. if text.iter().all(is_digit) => Some(if text.len().is_multiple_of(2) { HEX } else { HEX_ODD }),
        _ => None,
    }
}

fn is_digit(byte: &u8) -> bool {
    digit(byte).is_some()
}

/// A lower-case hex digit. Capitals would not read back as they were written.
fn digit(byte: &u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed_bytes(text: &str) -> usize {
        let token = Token::parse(text).unwrap();
        let packed = pack(&token);
        assert_eq!(unpack(packed.as_bytes()).unwrap(), token, "{text}");
        packed.as_bytes().len()
    }

    #[test]
    fn n3_every_token_reads_back_so_no_two_share_their_bytes() {
        let alphabet = ["0", "7", "a", "f", "g", "F", "-", "é"];
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            texts = texts.iter().flat_map(|text| alphabet.map(|next| format!("{text}{next}"))).collect();
            texts.iter().for_each(|text| assert!(packed_bytes(text) <= text.len()));
        }
    }

    #[test]
    fn numbers_take_half() {
        for (text, bytes) in [
            ("0198f6a2-7d3c-7b1e-9f20-5a6b7c8d9e0f", 17),
            ("0198f6a27d3c7b1e9f205a6b7c8d9e0f", 17),
            ("0198F6A2-7D3C-7B1E-9F20-5A6B7C8D9E0F", 36),
            ("0198f6a2-7d3c-7b1e-9f205-a6b7c8d9e0f", 36),
            ("20130101123", 7),
            ("2013010112", 6),
            ("order-77", 8),
        ] {
            assert_eq!(packed_bytes(text), bytes, "{text}");
        }
        assert_eq!(packed_bytes(&"9".repeat(TOKEN_BYTES_MAX)), 33);
        assert_eq!(packed_bytes(&"x".repeat(TOKEN_BYTES_MAX)), TOKEN_BYTES_MAX);
    }

    #[test]
    fn bytes_that_pack_never_writes_are_refused() {
        for bytes in [&b""[..], &[HEX], &[HEX_ODD], &[UUID, 1, 2], &[0xff, 0xfe]] {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
    }
}
