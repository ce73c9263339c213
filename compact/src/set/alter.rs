//! Changing a set that serves: fields and options.

use super::{CounterSet, Tables};
use crate::options::Options;
use crate::refusal::Refusal;
use crate::schema::Field;

/// A change of `CT.ALTER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `ADD`: a new field, 0 for each id.
    Add(Field),
    /// `WIDEN`: more bits for a field.
    Widen(Field),
    /// `RETIRE`: removes a field by its name.
    Retire(Vec<u8>),
    /// `OPTION`: name and value.
    Option(Vec<u8>, Vec<u8>),
}

impl CounterSet {
    /// Changes the schema or an option. Records follow in the background, table after table; meanwhile, each command sees the
    /// new schema.
    ///
    /// # Errors
    /// `Invalid`, with the reason.
    pub fn alter(&mut self, change: Change) -> Result<(), Refusal> {
        let (mut schema, mut options) = (self.schema.clone(), self.options.clone());
        match change {
            Change::Add(field) => schema.add(field).map(|_| ())?,
            Change::Widen(field) => schema.widen(&field)?,
            Change::Retire(name) => schema.retire(&name)?,
            Change::Option(name, value) => options.set(&name, &value, false)?,
        }
        options.check()?;
        self.adopt(schema, options);
        Ok(())
    }

    fn adopt(&mut self, schema: crate::Schema, options: Options) {
        if schema != self.schema {
            self.behind = Some(u32::MAX);
        }
        self.shape = super::Shape::new(&schema, &options, self.shape.seed);
        if let Tables::Rising(rising) = &mut self.tables {
            // Spare tables have the old layout, and may be too many.
            rising.left.extend(rising.spares.drain(..));
        }
        self.tokens.resize(options.token_window_ms);
        self.cache.set_capacity(options.cache_bytes as usize);
        (self.schema, self.options) = (schema, options);
    }

    /// Moves the slots of a group to the layout of the schema, or passes a table that has it. Returns whether there is more to do.
    ///
    /// The newest tables come first: they get most of the increments, and all of the new ids.
    pub(super) fn convert_a_group(&mut self) -> bool {
        let Some(behind) = self.behind else { return false };
        let Some((serial, table)) = self.tables.up_to(behind) else {
            self.behind = None;
            return false;
        };
        let is_passed = table.is_none_or(|table| {
            if !table.is_converting() {
                table.begin_conversion(self.shape.layout.clone());
            }
            let is_passed = !table.is_converting();
            table.convert_group(&self.schema, self.shape.seed);
            is_passed
        });
        self.behind = if is_passed { serial.checked_sub(1) } else { Some(serial) };
        self.behind.is_some()
    }
}
