//! Changing records. A refused change has changed nothing.

use super::rising::Body;
use super::{CounterSet, Home, Mode, Tables};
use crate::cold::{Entry, Fetched, RepairWork, Source};
use crate::hash::Hash;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::schema::{FIELD_NUMBERS_MAX, Field, Schema};
use crate::table::Found;
use std::collections::BTreeMap;

impl CounterSet {
    /// Adds to fields of an id, all or nothing, and appends the new value for each delta. In [`Mode::Apply`], an id whose page was
    /// not read appends zeros.
    ///
    /// # Errors
    /// `Invalid` for a number without a field, `Overflow`, `Full`; `Cold` and `Damaged` as of [`CounterSet::read`].
    #[inline]
    pub fn increment(
        &mut self,
        mode: Mode,
        id: u64,
        deltas: &[(u8, i64)],
        fetched: &Fetched,
        results: &mut Vec<i64>,
    ) -> Result<(), Refusal> {
        let hash = Hash::of(id, self.shape.seed);
        let changes = &mut self.changes;
        match self.tables.home(id, hash) {
            Home::Hot(table, found) => {
                sum(&self.schema, id, deltas, changes, |number| table.value(id, hash, found, number))?;
                if found == Found::Absent {
                    self.insert(mode, id, hash)?;
                } else if table.store(id, hash, found, changes) {
                    self.tables.left(id);
                }
            }
            Home::Nowhere => {
                sum(&self.schema, id, deltas, changes, |_| 0)?;
                self.insert(mode, id, hash)?;
            }
            Home::Part(place) => match self.record_of_part(place, id, hash, fetched) {
                Ok(record) => {
                    sum(&self.schema, id, deltas, &mut self.changes, |number| record.get(number))?;
                    self.store_in_part(place, id, record);
                }
                Err(refusal) if mode == Mode::Apply && refusal.lacks_record() => {
                    if let Some(Body::Cold(cold)) = self.tables.part_mut(place) {
                        cold.add_unread(id, deltas);
                    }
                    results.extend(deltas.iter().map(|_| 0));
                    return Ok(());
                }
                Err(refusal) => return Err(refusal),
            },
        }
        results.extend(self.changes.iter().map(|(_, value)| *value));
        Ok(())
    }

    /// Sets fields of an id. Errors as of [`CounterSet::increment`]; a negative value of an unsigned field is an `Overflow`.
    pub fn set(&mut self, mode: Mode, id: u64, values: &[(u8, i64)], fetched: &Fetched) -> Result<(), Refusal> {
        for (number, value) in values {
            in_range(Some(*value), live(&self.schema, *number)?, id)?;
        }
        self.overwrite(mode, id, values, fetched)
    }

    /// Sets a field and its time field where the time is greater than the one that is stored, and returns whether it was. Errors as
    /// of [`CounterSet::set`].
    pub fn set_newer(
        &mut self,
        mode: Mode,
        id: u64,
        (number, value): (u8, i64),
        (time_number, time): (u8, i64),
        fetched: &Fetched,
    ) -> Result<bool, Refusal> {
        if time <= self.read_field(id, time_number, fetched)? {
            return Ok(false);
        }
        self.set(mode, id, &[(number, value), (time_number, time)], fetched)?;
        Ok(true)
    }

    /// Sets all fields of an id to 0, and returns whether one was not. Errors as of [`CounterSet::read`].
    pub fn delete(&mut self, mode: Mode, id: u64, fetched: &Fetched) -> Result<bool, Refusal> {
        let hash = Hash::of(id, self.shape.seed);
        let numbers = &self.shape.numbers;
        let place = match self.tables.home(id, hash) {
            Home::Hot(table, found) => {
                if numbers.iter().all(|number| table.value(id, hash, found, *number) == 0) {
                    return Ok(false);
                }
                // In a dictionary, also the values of retired fields: with them, the record would keep its place.
                self.changes.clear();
                self.changes.extend((0..=u8::MAX).zip(self.schema.fields()).map(|(number, _)| (number, 0)));
                if table.store(id, hash, found, &self.changes) {
                    self.tables.left(id);
                }
                return Ok(true);
            }
            Home::Nowhere => return Ok(false),
            Home::Part(place) => place,
        };
        let is_zero = |record: &Record| numbers.iter().all(|number| record.get(*number) == 0);
        let source = Source { fetched, cache: &mut self.cache, keeps: false };
        if self.tables.read_part(place, id, hash, source, is_zero)? {
            return Ok(false);
        }
        let zeros: Vec<(u8, i64)> = self.shape.numbers.iter().map(|number| (*number, 0)).collect();
        self.overwrite(mode, id, &zeros, fetched)?;
        Ok(true)
    }

    /// Gives the damaged ids from `first` to `last` these records (all live fields each), and the other damaged ids of the range 0.
    /// Ids that are not damaged do not change. Returns how many records were taken.
    ///
    /// # Errors
    /// `Invalid`: the number of values does not match, an id is not of the range or comes twice, or a value of an unsigned field is
    /// below 0. `TooLarge` in [`Mode::Decide`].
    pub fn repair(&mut self, mode: Mode, first: u64, last: u64, ids: &[u64], values: &[i64]) -> Result<u64, Refusal> {
        let numbers = &self.shape.numbers;
        if values.len() != ids.len() * numbers.len() || first > last {
            return Err(Refusal::invalid("a repair has all fields of each id, and a range from first to last"));
        }
        let record = |values: &[i64]| {
            let mut record = Record::default();
            numbers.iter().zip(values).for_each(|(number, value)| record.set(*number, *value));
            record
        };
        let records = ids.iter().copied().zip(values.chunks(numbers.len()).map(record));
        let records: BTreeMap<u64, Record> = records.collect();
        if records.len() < ids.len() || ids.iter().any(|id| !(first..=last).contains(id)) {
            return Err(Refusal::invalid("the ids of a repair are distinct, and from first to last"));
        }
        let signed: Vec<bool> = self.schema.live().map(|(_, field)| field.signed).collect();
        if values.chunks(numbers.len()).any(|row| row.iter().zip(&signed).any(|(value, signed)| *value < 0 && !signed))
        {
            return Err(Refusal::invalid("a repair has no value below 0 for an unsigned field"));
        }
        let Tables::Rising(rising) = &mut self.tables else { return Ok(0) };
        let (Some(begin), Some(end)) = (rising.place(first), rising.place(last)) else { return Ok(0) };
        let (mut damaged, mut work) = (Vec::new(), RepairWork::default());
        for place in begin..=end {
            #[cfg(test)]
            super::tests::visited();
            let Body::Cold(cold) = &rising.parts[place].body else { continue };
            if cold.damaged_len() > 0 && cold.count_repair(first, last, &mut work) {
                damaged.push(place);
            }
            // A replica has damage of other ranges, and repairs what it has of this one.
            if mode == Mode::Decide && work.is_too_much() {
                return Err(Refusal::TooLarge);
            }
        }
        let mut repaired = 0;
        for place in damaged {
            if let Body::Cold(cold) = &mut rising.parts[place].body {
                repaired += cold.repair(first, last, &records);
            }
        }
        Ok(repaired)
    }

    fn overwrite(&mut self, mode: Mode, id: u64, values: &[(u8, i64)], fetched: &Fetched) -> Result<(), Refusal> {
        let hash = Hash::of(id, self.shape.seed);
        self.changes.clear();
        self.changes.extend_from_slice(values);
        match self.tables.home(id, hash) {
            Home::Hot(table, found) if found != Found::Absent => {
                if table.store(id, hash, found, values) {
                    self.tables.left(id);
                }
            }
            Home::Hot(..) | Home::Nowhere => self.insert(mode, id, hash)?,
            Home::Part(place) => {
                // A bit for each number: a search of the values for each field would take a time of the square of the fields.
                let mut named = [0_u64; FIELD_NUMBERS_MAX / 64];
                values.iter().for_each(|(number, _)| named[usize::from(number / 64)] |= 1 << (number % 64));
                let is_named = |number: &u8| named[usize::from(number / 64)] >> (number % 64) & 1 != 0;
                let record = if self.shape.numbers.iter().all(is_named) {
                    Ok(Record::default())
                } else {
                    self.record_of_part(place, id, hash, fetched)
                };
                match (record, self.tables.part_mut(place)) {
                    (Ok(record), _) => self.store_in_part(place, id, record),
                    (Err(refusal), Some(Body::Cold(cold))) if mode == Mode::Apply && refusal.lacks_record() => {
                        cold.set_unread(id, values);
                    }
                    (Err(refusal), _) => return Err(refusal),
                }
            }
        }
        Ok(())
    }

    /// Gives an absent id a place, and stores the changes there. An id whose values are all 0 needs none.
    fn insert(&mut self, mode: Mode, id: u64, hash: Hash) -> Result<(), Refusal> {
        if self.changes.iter().all(|(_, value)| *value == 0) {
            return Ok(());
        }
        let (table, found) = self.tables.make_room(id, hash, &self.shape, mode)?;
        table.store(id, hash, found, &self.changes);
        Ok(())
    }

    /// Stores a record with the changes above slots that do not change.
    fn store_in_part(&mut self, place: usize, id: u64, mut record: Record) {
        for (number, value) in &self.changes {
            record.set(*number, *value);
        }
        match self.tables.part_mut(place) {
            Some(Body::Cold(cold)) => cold.write(id, record),
            Some(Body::Frozen(_, overlay, _)) => overlay.insert(id, Entry::Absolute(record)),
            _ => debug_assert!(false, "a hot table has slots"),
        }
    }
}

impl Tables {
    /// An id has no place in its table any more.
    #[cold]
    fn left(&mut self, id: u64) {
        if let Tables::Rising(rising) = self {
            rising.left_table(id);
        }
    }

    pub(super) fn part_mut(&mut self, place: usize) -> Option<&mut Body> {
        match self {
            Tables::Rising(rising) => rising.parts.get_mut(place).map(|part| &mut part.body),
            Tables::Random(_) => None,
        }
    }
}

/// The values after the deltas, in `changes`. A field that is named twice is added to twice.
#[inline]
fn sum(
    schema: &Schema,
    id: u64,
    deltas: &[(u8, i64)],
    changes: &mut Vec<(u8, i64)>,
    current: impl Fn(u8) -> i64,
) -> Result<(), Refusal> {
    changes.clear();
    for (number, delta) in deltas {
        let field = live(schema, *number)?;
        let earlier = changes.iter().rev().find(|(earlier, _)| earlier == number).map(|(_, value)| *value);
        let value = earlier.unwrap_or_else(|| current(*number)).checked_add(*delta);
        changes.push((*number, in_range(value, field, id)?));
    }
    Ok(())
}

#[inline]
fn live(schema: &Schema, number: u8) -> Result<&Field, Refusal> {
    schema.field(number).ok_or_else(|| Refusal::invalid(format!("there is no field of number {number}")))
}

#[inline]
fn in_range(value: Option<i64>, field: &Field, id: u64) -> Result<i64, Refusal> {
    match value {
        Some(value) if value >= 0 || field.signed => Ok(value),
        _ => Err(Refusal::Overflow { id, field: field.name.clone(), below_zero: value.is_some() }),
    }
}
