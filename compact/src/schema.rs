//! The fields of a counter set: their names, widths and numbers.

use crate::record::Record;
use crate::refusal::Refusal;

/// Bits of all fields of a record at most (W1).
pub(crate) const RECORD_BITS_MAX: u32 = 256;
/// A field number is one byte, and retired numbers are not used again.
pub(crate) const FIELD_NUMBERS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;

/// A counter of each id. Its value is an int64 whatever its width: a record in which a value outgrows the width of its field
/// moves to the aux dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Unique among the fields that are not retired.
    pub name: String,
    /// Bits in a slot, 1 to 64.
    pub width: u8,
    /// Whether values may be negative.
    pub signed: bool,
    /// Whether the field was removed. Its number stays taken.
    pub retired: bool,
}

impl Field {
    /// Parses a field: its name, and its width as `24`, `u24` or `i24`.
    pub fn parse(name: &[u8], width: &[u8]) -> Result<Field, Refusal> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_plain) {
            return Err(Refusal::invalid(format!(
                "a field name has 1 to {NAME_BYTES_MAX} letters, digits or '_', '-', '.'"
            )));
        }
        let (signed, digits) = match width {
            [b'u' | b'U', digits @ ..] => (false, digits),
            [b'i' | b'I', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        let width = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let width = width
            .filter(|width| (1..=64).contains(width))
            .ok_or_else(|| Refusal::invalid("a width is 1 to 64 bits, written 24 or u24 (unsigned) or i24 (signed)"))?;
        Ok(Field { name: String::from_utf8_lossy(name).into_owned(), width, signed, retired: false })
    }

    /// Whether a value has room in the bits of this field.
    pub fn fits(&self, value: i64) -> bool {
        let width = u32::from(self.width);
        match (self.signed, width) {
            (_, 64) => true,
            (true, width) => (value >> (width - 1)) == 0 || (value >> (width - 1)) == -1,
            (false, width) => value >= 0 && (value >> width.min(63)) == 0,
        }
    }
}

/// The fields of a counter set in the order of their creation. The place of a field is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<Field>,
}

impl Schema {
    /// A schema of these fields, retired ones included.
    pub fn new(fields: Vec<Field>) -> Result<Schema, Refusal> {
        let mut schema = Schema { fields: Vec::new() };
        for field in fields {
            if !field.retired {
                schema.add(field)?;
            } else if schema.fields.len() < FIELD_NUMBERS_MAX {
                schema.fields.push(field);
            }
        }
        if schema.live().next().is_none() {
            return Err(Refusal::invalid("a schema has at least one field"));
        }
        Ok(schema)
    }

    /// Adds a field and returns its number.
    pub fn add(&mut self, field: Field) -> Result<u8, Refusal> {
        if self.number(field.name.as_bytes()).is_some() {
            return Err(Refusal::invalid(format!("the field '{}' exists", field.name)));
        }
        self.check_bits(u32::from(field.width))?;
        let number = u8::try_from(self.fields.len())
            .map_err(|_| Refusal::invalid(format!("a schema has at most {FIELD_NUMBERS_MAX} fields in its life")))?;
        self.fields.push(field);
        Ok(number)
    }

    /// Gives a field more bits. Its sign stays.
    pub fn widen(&mut self, field: &Field) -> Result<(), Refusal> {
        let number = self.live_number(field.name.as_bytes())?;
        let old = &self.fields[usize::from(number)];
        if field.width <= old.width || field.signed != old.signed {
            let sign = if old.signed { 'i' } else { 'u' };
            return Err(Refusal::invalid(format!("'{}' is {sign}{}, and can only be widened", old.name, old.width)));
        }
        self.check_bits(u32::from(field.width - old.width))?;
        self.fields[usize::from(number)].width = field.width;
        Ok(())
    }

    /// Removes a field. Its values are gone; a later field of the same name begins at 0.
    pub fn retire(&mut self, name: &[u8]) -> Result<(), Refusal> {
        let number = self.live_number(name)?;
        if self.live().count() == 1 {
            return Err(Refusal::invalid("the last field of a schema stays"));
        }
        self.fields[usize::from(number)].retired = true;
        Ok(())
    }

    /// All fields, also retired ones, by number.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The fields that are not retired, with their numbers: the order of the values in a reply.
    pub fn live(&self) -> impl Iterator<Item = (u8, &Field)> {
        (0..=u8::MAX).zip(&self.fields).filter(|(_, field)| !field.retired)
    }

    /// The number of the live field of this name.
    #[inline]
    pub fn number(&self, name: &[u8]) -> Option<u8> {
        let is_it = |field: &Field| !field.retired && field.name.as_bytes() == name;
        self.fields.iter().position(is_it).map(|number| number as u8)
    }

    /// The field of this number, if it is live.
    #[inline]
    pub fn field(&self, number: u8) -> Option<&Field> {
        self.fields.get(usize::from(number)).filter(|field| !field.retired)
    }

    /// A record without the values of retired fields.
    pub(crate) fn without_retired(&self, record: Record) -> Record {
        let has_retired =
            (0..=u8::MAX).zip(record.values()).any(|(number, value)| *value != 0 && self.field(number).is_none());
        if !has_retired {
            return record;
        }
        let keep = |(number, value): (u8, &i64)| if self.field(number).is_some() { *value } else { 0 };
        Record::new((0..=u8::MAX).zip(record.values()).map(keep).collect())
    }

    fn live_number(&self, name: &[u8]) -> Result<u8, Refusal> {
        self.number(name)
            .ok_or_else(|| Refusal::invalid(format!("there is no field '{}'", String::from_utf8_lossy(name))))
    }

    fn check_bits(&self, more: u32) -> Result<(), Refusal> {
        let bits: u32 = self.live().map(|(_, field)| u32::from(field.width)).sum();
        if bits + more > RECORD_BITS_MAX {
            return Err(Refusal::invalid(format!(
                "the fields of a record have at most {RECORD_BITS_MAX} bits together"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_fits_at_the_limits_of_each_width() {
        for width in 1..=64_u8 {
            let unsigned = Field::parse(b"f", format!("u{width}").as_bytes()).expect("a width");
            let signed = Field::parse(b"f", format!("i{width}").as_bytes()).expect("a width");
            let most = if width >= 63 { i64::MAX } else { (1 << width) - 1 };
            assert!(unsigned.fits(most) && unsigned.fits(0), "u{width}");
            assert!(width >= 63 || !unsigned.fits(most + 1), "u{width}");
            let (least, most) = (i64::MIN >> (64 - width), i64::MAX >> (64 - width));
            assert!(signed.fits(least) && signed.fits(most), "i{width}");
            assert!(width == 64 || (!signed.fits(most + 1) && !signed.fits(least - 1)), "i{width}");
        }
    }

    #[test]
    fn w1_numbers_stay_with_their_fields() {
        let field = |name: &str, width: &str| Field::parse(name.as_bytes(), width.as_bytes());
        let mut schema = Schema::new(vec![field("a", "10").unwrap(), field("b", "i20").unwrap()]).unwrap();
        schema.retire(b"a").unwrap();
        assert_eq!(schema.add(field("a", "8").unwrap()), Ok(2));
        assert_eq!(schema.live().map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
        assert!(schema.widen(&field("b", "21").unwrap()).is_err(), "its sign stays");
        assert!(schema.widen(&field("b", "i249").unwrap_or(field("b", "i20").unwrap())).is_err());
        schema.widen(&field("b", "i64").unwrap()).unwrap();
        assert!(schema.add(field("c", "64").unwrap()).is_ok() && schema.add(field("d", "64").unwrap()).is_ok());
        assert!(schema.add(field("e", "57").unwrap()).is_err(), "256 bits");
        assert!(["", "0", "65", "x8", "-1", "u"].iter().all(|width| field("f", width).is_err()));
        assert!(field("", "8").is_err() && field("a b", "8").is_err());
    }
}
