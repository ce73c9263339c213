//! Changes to a record that was not read.
//!
//! They arise in apply mode: the primary has read the record, decided, and replicated the command. Sums of increments wrap. That is
//! exact: addition modulo 2^64 does not depend on its order, and the primary has found each result to be an int64. A checked sum
//! would be wrong here, since two increments may leave the range together that the record between them does not.

use crate::record::Record;

/// What happened to a record since it was last known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// By field number: the sum of the increments, or the value if the field was set.
    values: Record,
    /// The fields that were set, a bit for each number. Few patches have any.
    set: Option<Box<[u64; 4]>>,
}

/// What a patch does to one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchPart {
    /// It adds this.
    Add(i64),
    /// It sets the field to this.
    Set(i64),
}

impl Patch {
    /// Adds to a field, whatever its value.
    pub fn add(&mut self, number: u8, delta: i64) {
        self.values.set(number, self.values.get(number).wrapping_add(delta));
    }

    /// Gives a field a value.
    pub fn set(&mut self, number: u8, value: i64) {
        self.set.get_or_insert_default()[usize::from(number / 64)] |= 1 << (number % 64);
        self.values.set(number, value);
    }

    /// The parts by field number. [`Patch::from_iter`] makes the same patch of them.
    pub fn parts(&self) -> impl Iterator<Item = (u8, PatchPart)> + '_ {
        (0..=u8::MAX).filter_map(|number| match (self.is_set(number), self.values.get(number)) {
            (true, value) => Some((number, PatchPart::Set(value))),
            (false, 0) => None,
            (false, delta) => Some((number, PatchPart::Add(delta))),
        })
    }

    /// Changes the record that the patch is for.
    pub fn apply(&self, record: &mut Record) {
        for (number, &value) in (0..=u8::MAX).zip(self.values.values()) {
            let base = if self.is_set(number) { 0 } else { record.get(number) };
            record.set(number, base.wrapping_add(value));
        }
        if self.set.is_some() {
            let zeros = (0..=u8::MAX).skip(self.values.values().len());
            zeros.filter(|&number| self.is_set(number)).for_each(|number| record.set(number, 0));
        }
    }

    /// Appends a later patch of the same record.
    pub(super) fn append(&mut self, later: &Patch) {
        for (number, part) in later.parts() {
            match part {
                PatchPart::Add(delta) => self.add(number, delta),
                PatchPart::Set(value) => self.set(number, value),
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.values.heap_bytes() + self.set.as_ref().map_or(0, |_| size_of::<[u64; 4]>())
    }

    fn is_set(&self, number: u8) -> bool {
        self.set.as_ref().is_some_and(|set| set[usize::from(number / 64)] >> (number % 64) & 1 == 1)
    }
}

impl FromIterator<(u8, PatchPart)> for Patch {
    fn from_iter<I: IntoIterator<Item = (u8, PatchPart)>>(parts: I) -> Patch {
        let mut patch = Patch::default();
        for (number, part) in parts {
            match part {
                PatchPart::Add(delta) => patch.add(number, delta),
                PatchPart::Set(value) => patch.set(number, value),
            }
        }
        patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts() -> impl Strategy<Value = Vec<(u8, PatchPart)>> {
        let part = prop_oneof![
            any::<i64>().prop_map(PatchPart::Add),
            any::<i64>().prop_map(PatchPart::Set),
            Just(PatchPart::Set(0))
        ];
        prop::collection::vec((prop_oneof![0..4_u8, any::<u8>()], part), 0..12)
    }

    proptest! {
        #[test]
        fn w3_a_patch_is_what_its_parts_do(base in prop::collection::vec(any::<i64>(), 0..6), first in parts(), later in parts()) {
            let mut expected = Record::new(base.clone());
            for &(number, part) in first.iter().chain(&later) {
                match part {
                    PatchPart::Add(delta) => expected.set(number, expected.get(number).wrapping_add(delta)),
                    PatchPart::Set(value) => expected.set(number, value),
                }
            }
            let (first, later): (Patch, Patch) = (first.into_iter().collect(), later.into_iter().collect());
            let mut in_turn = Record::new(base.clone());
            first.apply(&mut in_turn);
            later.apply(&mut in_turn);
            prop_assert_eq!(&in_turn, &expected);
            let mut both = first;
            both.append(&later);
            let copy: Patch = both.parts().collect();
            prop_assert_eq!(&copy, &both);
            let mut at_once = Record::new(base);
            both.apply(&mut at_once);
            prop_assert_eq!(&at_once, &expected);
        }
    }
}
