//! A whole record outside of a slot: in a dictionary, in an overlay, on a page.

/// The values of one id by field number. Missing values are 0; the last one is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(Vec<i64>);

impl Record {
    /// A record of these values by field number.
    pub fn new(mut values: Vec<i64>) -> Record {
        while values.last() == Some(&0) {
            values.pop();
        }
        values.shrink_to_fit();
        Record(values)
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, number: u8) -> i64 {
        self.0.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Changes the value of a field.
    pub fn set(&mut self, number: u8, value: i64) {
        let place = usize::from(number);
        if place >= self.0.len() {
            if value == 0 {
                return;
            }
            self.0.reserve_exact(place + 1 - self.0.len());
            self.0.resize(place + 1, 0);
        }
        self.0[place] = value;
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// The values by field number, without the zeros at the end.
    pub fn values(&self) -> &[i64] {
        &self.0
    }

    /// The values with the numbers of their fields.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u8, i64)> + '_ {
        (0..=u8::MAX).zip(self.0.iter().copied())
    }

    /// Whether all values are 0: such a record equals a missing one.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Memory in addition to the record's own place.
    pub fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<i64>()
    }
}
