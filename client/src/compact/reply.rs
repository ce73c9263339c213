//! Replies.

use super::packed::IDS_MAX;
use std::fmt;

/// Values of one reply at most.
pub const VALUES_MAX: usize = 4_096;

/// A packed reply of another length than its ids and fields have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a packed reply has 8 bytes for each field of each id")
    }
}

impl std::error::Error for Malformed {}

/// What happened to the increments of a `CT.PINCRBY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many have counted.
    pub count: u64,
    /// Those that have not.
    pub refused: Vec<RefusedIncrement>,
}

/// An increment that has not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedIncrement {
    /// Its place among the increments of the command, from 0.
    pub place: usize,
    /// Why, with the code as the first word.
    pub error: String,
}

impl RefusedIncrement {
    /// The code: `OVERFLOW`, `FULL`, `DAMAGED`, `ERR`; with a token also `ABORTED`, of those that were held up by another one.
    pub fn code(&self) -> &str {
        self.error.split(' ').next().unwrap_or_default()
    }
}

impl Applied {
    /// Reads a reply: its first element, and each pair that follows it.
    pub fn from_reply(count: i64, refused: impl IntoIterator<Item = (i64, String)>) -> Applied {
        let refused = refused.into_iter().filter_map(|(place, error)| {
            let place = usize::try_from(place).ok()?;
            Some(RefusedIncrement { place, error })
        });
        Applied { count: u64::try_from(count).unwrap_or(0), refused: refused.collect() }
    }
}

/// How many ids one command can read, of sets with so many fields.
pub fn ids_per_reply(fields: usize) -> usize {
    IDS_MAX.min(VALUES_MAX / fields.max(1))
}

/// The values of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    fields: usize,
    values: Vec<i64>,
}

impl Values {
    /// The values of each id, in the order of the ids. Its values have the order of the schema.
    pub fn rows(&self) -> impl Iterator<Item = &[i64]> {
        self.values.chunks_exact(self.fields)
    }

    /// The values of the id in this place.
    pub fn row(&self, place: usize) -> Option<&[i64]> {
        let begin = place.checked_mul(self.fields)?;
        self.values.get(begin..begin + self.fields)
    }
}

/// Reads the reply of `CT.PGET`. `fields`: the number of fields that are not retired.
///
/// # Errors
/// The reply has another length.
pub fn unpack_values(fields: usize, reply: &[u8]) -> Result<Values, Malformed> {
    if fields == 0 || !reply.len().is_multiple_of(8 * fields) {
        return Err(Malformed);
    }
    let word = |bytes: &[u8]| bytes.try_into().map(i64::from_le_bytes).map_err(|_| Malformed);
    let values = reply.chunks_exact(8).map(word).collect::<Result<_, _>>()?;
    Ok(Values { fields, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_replies_of_another_length_are_malformed() {
        assert_eq!(unpack_values(2, &[0; 24]), Err(Malformed));
        assert_eq!(unpack_values(0, &[]), Err(Malformed));
        assert_eq!((ids_per_reply(4), ids_per_reply(8), ids_per_reply(0)), (512, 512, 512));
        let values = unpack_values(1, &i64::MIN.to_le_bytes()).unwrap();
        assert_eq!((values.row(0), values.row(1)), (Some(&[i64::MIN][..]), None));
        assert_eq!(unpack_values(3, &[]).unwrap().rows().count(), 0);
    }
}
