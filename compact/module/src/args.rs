//! The arguments of a command, as bytes.

use crate::raw::{Str, api};
use std::ffi::c_int;
use std::marker::PhantomData;

/// The arguments of one call. For a command, the first is its name.
pub(crate) struct Args<'a> {
    strings: &'a [*mut Str],
    _call: PhantomData<&'a Str>,
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` has `argc` strings, which live as long as the callback.
    pub(crate) unsafe fn new(argv: *mut *mut Str, argc: c_int) -> Args<'a> {
        let strings = match usize::try_from(argc) {
            // SAFETY: the caller's promise.
            Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(argv, count) },
            _ => &[],
        };
        Args { strings, _call: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.strings.len()
    }

    /// The bytes of an argument.
    ///
    /// # Panics
    /// If there are fewer arguments.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string lives as long as the callback, and the engine returns its bytes and their number.
        unsafe {
            let bytes = (api().string_ptr_len)(self.strings[place], &mut len);
            std::slice::from_raw_parts(bytes, len)
        }
    }

    /// The engine's string of an argument.
    #[inline]
    pub(crate) fn raw(&self, place: usize) -> *mut Str {
        self.strings[place]
    }

    /// All strings from a place on.
    pub(crate) fn raw_from(&self, place: usize) -> &'a [*mut Str] {
        &self.strings[place..]
    }
}

/// A decimal number of digits only. Zeros at the front are accepted: redis-benchmark writes them.
#[inline]
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    // 19 digits have room in 64 bits, whatever they are.
    let (plain, rest) = text.split_at(text.len().min(19));
    let mut number = 0_u64;
    for byte in plain {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    if rest.is_empty() {
        return (!plain.is_empty()).then_some(number);
    }
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        number = number.checked_mul(10)?.checked_add(u64::from(digit)).filter(|_| digit <= 9)?;
    }
    Some(number)
}

/// A decimal number of up to 128 bits.
pub(crate) fn wide(text: &[u8]) -> Option<u128> {
    let mut number = 0_u128;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        number = number.checked_mul(10)?.checked_add(u128::from(digit)).filter(|_| digit <= 9)?;
    }
    (!text.is_empty()).then_some(number)
}

/// A decimal number, negative after a minus sign.
#[inline]
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => {
            let size = unsigned(digits)?;
            (size <= i64::MIN.unsigned_abs()).then(|| (size as i64).wrapping_neg())
        }
        digits => unsigned(digits).and_then(|number| i64::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_numbers_are_read_exactly() {
        for number in [0, 1, 9, 10, 12_345, u64::MAX / 10, u64::MAX - 1, u64::MAX] {
            assert_eq!(unsigned(number.to_string().as_bytes()), Some(number));
            assert_eq!(unsigned(format!("00000{number}").as_bytes()), Some(number));
        }
        for text in ["", "-", "-1", "+1", " 1", "1 ", "1a", "0x1", "18446744073709551616", "99999999999999999999999"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
        for number in [0, 9, 1 << 64, u128::MAX - 1, u128::MAX] {
            assert_eq!(wide(format!("00{number}").as_bytes()), Some(number));
            assert_eq!(wide(format!("{number}0").as_bytes()), number.checked_mul(10));
        }
        for text in ["", "-1", " 1", "1a", "340282366920938463463374607431768211456"] {
            assert_eq!(wide(text.as_bytes()), None, "{text}");
        }
        for number in [0, -1, 1, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(signed(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "--1", "9223372036854775808", "-9223372036854775809", "1.5"] {
            assert_eq!(signed(text.as_bytes()), None, "{text}");
        }
    }
}
