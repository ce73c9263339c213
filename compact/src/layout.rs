//! Where the fields of a record lie in its slot, by the bit.

use crate::schema::{FIELD_NUMBERS_MAX, Schema};

/// Bytes after the last slot of a segment, so that a field is read and written with one access wherever it lies.
pub(crate) const PAD_BYTES: usize = 16;

/// The place of a field in a slot's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitRange {
    pub(crate) bit: u16,
    pub(crate) width: u8,
    pub(crate) signed: bool,
}

impl BitRange {
    /// Whether a value has room. As [`crate::Field::fits`].
    #[inline]
    pub(crate) fn fits(self, value: i64) -> bool {
        let spare = 64 - u32::from(self.width);
        if self.signed {
            (value << spare) >> spare == value
        } else {
            value >= 0 && ((value as u64) << spare) >> spare == value as u64
        }
    }

    /// Reads the field of the record that begins at `record[0]`.
    #[inline]
    pub(crate) fn read(self, record: &[u8]) -> i64 {
        let (byte, shift) = (usize::from(self.bit >> 3), u32::from(self.bit & 7));
        let spare = 64 - u32::from(self.width);
        let bits = if shift <= spare { load(record, byte) >> shift } else { (load_wide(record, byte) >> shift) as u64 };
        // The bits above the width are cut off, or become the sign.
        if self.signed { ((bits << spare) as i64) >> spare } else { ((bits << spare) >> spare) as i64 }
    }

    /// Writes a value that fits.
    #[inline]
    pub(crate) fn write(self, record: &mut [u8], value: i64) {
        debug_assert!(self.fits(value), "{value} in {self:?}");
        let (byte, shift) = (usize::from(self.bit >> 3), u32::from(self.bit & 7));
        let spare = 64 - u32::from(self.width);
        let mask = u64::MAX >> spare;
        let bits = value as u64 & mask;
        if shift <= spare {
            let old = load(record, byte);
            let new = (old & !(mask << shift)) | (bits << shift);
            record[byte..byte + 8].copy_from_slice(&new.to_le_bytes());
        } else {
            let old = load_wide(record, byte);
            let new = (old & !(u128::from(mask) << shift)) | (u128::from(bits) << shift);
            record[byte..byte + 16].copy_from_slice(&new.to_le_bytes());
        }
    }
}

#[inline]
fn load(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
fn load_wide(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// The places of all fields that a table's slots hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// By field number; `None`: the table has no bits for it.
    places: Vec<Option<BitRange>>,
    /// Bytes of a record.
    pub(crate) bytes: usize,
}

impl Layout {
    /// The live fields of a schema, one after the other.
    pub(crate) fn of(schema: &Schema) -> Layout {
        let mut places = vec![None; schema.fields().len()];
        let mut bit = 0_u16;
        for (number, field) in schema.live() {
            places[usize::from(number)] = Some(BitRange { bit, width: field.width, signed: field.signed });
            bit += u16::from(field.width);
        }
        Layout { places, bytes: usize::from(bit).div_ceil(8) }
    }

    /// A layout that was dumped. `None` if it is not one.
    pub(crate) fn from_places(places: Vec<Option<BitRange>>, bytes: usize) -> Option<Layout> {
        let ends = |place: &BitRange| usize::from(place.bit) + usize::from(place.width) <= bytes * 8;
        let is_sound =
            |place: &Option<BitRange>| place.is_none_or(|place| (1..=64).contains(&place.width) && ends(&place));
        let sound = places.len() <= FIELD_NUMBERS_MAX && bytes <= 64 && places.iter().all(is_sound);
        sound.then_some(Layout { places, bytes })
    }

    /// The place of a field, if slots have bits for it.
    #[inline]
    pub(crate) fn place(&self, number: u8) -> Option<BitRange> {
        self.places.get(usize::from(number)).copied().flatten()
    }

    /// All places by field number.
    pub(crate) fn places(&self) -> &[Option<BitRange>] {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn w1_fields_are_read_as_written_and_neighbours_stay(
            fields in prop::collection::vec((1..=64_u8, any::<bool>(), any::<i64>()), 1..9),
            order in any::<u64>(),
        ) {
            let mut bits = 0;
            let fields: Vec<_> = fields.into_iter().take_while(|(width, ..)| {
                bits += u32::from(*width);
                bits <= 256
            }).collect();
            let named = fields.iter().enumerate().map(|(n, (width, signed, _))| Field {
                name: format!("f{n}"), width: *width, signed: *signed, retired: false,
            });
            let layout = Layout::of(&Schema::new(named.collect()).unwrap());
            let mut record = vec![0xff_u8; layout.bytes + PAD_BYTES];
            let cut = |(width, signed, value): (u8, bool, i64)| {
                let spare = 64 - u32::from(width);
                if signed { (value << spare) >> spare } else { (((value as u64) << spare) >> spare & i64::MAX as u64) as i64 }
            };
            let begin = order as usize % fields.len();
            for n in (begin..fields.len()).chain(0..begin) {
                layout.place(n as u8).unwrap().write(&mut record, cut(fields[n]));
            }
            for (n, field) in fields.iter().enumerate() {
                let place = layout.place(n as u8).unwrap();
                prop_assert!(place.fits(cut(*field)));
                prop_assert_eq!(place.read(&record), cut(*field));
            }
            let used: u32 = fields.iter().map(|(width, ..)| u32::from(*width)).sum();
            prop_assert!(record[layout.bytes..].iter().all(|byte| *byte == 0xff), "what follows stays");
            prop_assert!(used.is_multiple_of(8) || record[layout.bytes - 1] >> (used % 8) == 0xff >> (used % 8));
        }
    }
}
