//! A 64-bit integer of a JSON request.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use utoipa::ToSchema;

/// A 64-bit integer of a request: a number, or its decimal digits as text.
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

            fn visit_str<E: Error>(self, text: &str) -> Result<Int64, E> {
                text.parse().map(Int64).map_err(|_| E::custom(format!("'{text}' is no 64-bit integer")))
            }
        }

        deserializer.deserialize_any(OfInt64)
    }
}
