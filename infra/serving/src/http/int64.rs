//! A 64-bit integer of a JSON request.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use utoipa::ToSchema;

/// Digits of the largest 64-bit integers.
const DIGITS_MAX: usize = 19;
/// serde_json may round a number with an exponent or a fraction by some units in its last place. Below this magnitude these
/// are much less than 1, so a whole number is right.
const EXACT_BELOW: f64 = 1e14;

/// A 64-bit integer of a request: a number, or the same as text. Both may have an exponent or a fraction of zeros, as in
/// proto3's JSON mapping: `1e2` and `"100.0"` are 100. A number of that form must be below 10^14 in magnitude, so that
/// it is not rounded; text may have any.
#[derive(Clone, Copy, Default, ToSchema)]
pub struct Int64(pub i64);

impl Int64 {
    /// As 32 bits; what does not fit becomes the nearest number that does, which no call accepts.
    pub fn short(self) -> i32 {
        self.0.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    }
}

impl<'de> Deserialize<'de> for Int64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfInt64;

        impl Visitor<'_> for OfInt64 {
            type Value = Int64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a 64-bit integer, as a number or as text")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Int64, E> {
                Ok(Int64(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Int64, E> {
                i64::try_from(number).map(Int64).map_err(|_| E::custom(format!("{number} does not fit 64 bits")))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Int64, E> {
                if number.fract() != 0.0 {
                    return Err(E::custom(format!("{number} is no 64-bit integer")));
                }
                match number.abs() < EXACT_BELOW {
                    true => Ok(Int64(number as i64)),
                    false => {
                        Err(E::custom(format!("{number} is not exact: write this 64-bit integer in digits or as text")))
                    }
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Int64, E> {
                whole(text).map(Int64).ok_or_else(|| E::custom(format!("'{text}' is no 64-bit integer")))
            }
        }

        deserializer.deserialize_any(OfInt64)
    }
}

/// The integer that a decimal number is, exactly; `None`: it is none, or does not fit 64 bits.
fn whole(text: &str) -> Option<i64> {
    if let Ok(integer) = text.parse() {
        return Some(integer);
    }
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |unsigned| ("-", unsigned));
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (before, after) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    let digits = format!("{before}{after}");
    if before.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The number is `digits`, with this many zeros appended.
    let trimmed = digits.trim_end_matches('0');
    let zeros = i64::from(exponent) - after.len() as i64 + (digits.len() - trimmed.len()) as i64;
    let trimmed = trimmed.trim_start_matches('0');
    match (trimmed, usize::try_from(zeros)) {
        ("", _) => Some(0),
        (_, Ok(zeros)) if zeros < DIGITS_MAX => format!("{sign}{trimmed}{}", "0".repeat(zeros)).parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<i64, String> {
        serde_json::from_str(json).map(|Int64(integer)| integer).map_err(|error| error.to_string())
    }

    #[test]
    fn n2_an_integer_is_read_as_proto3s_json_mapping_has_it() {
        for (json, integer) in [
            ("7", 7),
            ("-9223372036854775808", i64::MIN),
            ("1e2", 100),
            ("-1.5E+1", -15),
            ("100e-2", 1),
            ("5.0", 5),
            ("0.0", 0),
            ("1732838400123.0", 1_732_838_400_123),
            ("99999999999999.0", 99_999_999_999_999),
            (r#""7""#, 7),
            (r#""1e2""#, 100),
            (r#""-1.50E1""#, -15),
            (r#""100e-2""#, 1),
            (r#""0e5""#, 0),
            (r#""-0.0""#, 0),
            (r#""0.07e2""#, 7),
            (r#""1e18""#, 1_000_000_000_000_000_000),
            (r#""9007199254740993.0""#, (1 << 53) + 1),
            (r#""-9.223372036854775808e18""#, i64::MIN),
            (r#""922337203685477580700e-2""#, i64::MAX),
        ] {
            assert_eq!(read(json), Ok(integer), "{json}");
        }
        for (bad, why) in [
            ("1.5", "1.5 is no 64-bit integer"),
            ("1e-1", "0.1 is no 64-bit integer"),
            ("9223372036854775808", "does not fit"),
            ("1e14", "is not exact"),
            ("-9007199254740991.0", "is not exact"),
            ("true", "a 64-bit integer"),
            (r#""1.5""#, "'1.5' is no 64-bit integer"),
            (r#""1e-1""#, "no 64-bit integer"),
            (r#""1e19""#, "no 64-bit integer"),
            (r#""9223372036854775808""#, "no 64-bit integer"),
            (r#""9.223372036854775808e18""#, "no 64-bit integer"),
            (r#""1e2147483648""#, "no 64-bit integer"),
            (r#""1e999999999""#, "no 64-bit integer"),
            (r#""""#, "no 64-bit integer"),
            (r#""-""#, "no 64-bit integer"),
            (r#"".5e1""#, "no 64-bit integer"),
            (r#""5.""#, "no 64-bit integer"),
            (r#""1e""#, "no 64-bit integer"),
            (r#""e2""#, "no 64-bit integer"),
            (r#""--1e2""#, "no 64-bit integer"),
            (r#"" 1e2""#, "no 64-bit integer"),
            (r#""1e2e2""#, "no 64-bit integer"),
        ] {
            let error = read(bad).expect_err(bad);
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
