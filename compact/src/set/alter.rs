//! Changing a set that serves: fields and options.

use super::rising::Body;
use super::{CounterSet, Tables};
use crate::options::Options;
use crate::refusal::Refusal;
use crate::schema::Field;
use crate::table::Table;

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
        self.is_behind |= schema != self.schema;
        self.shape = super::Shape::new(&schema, &options, self.shape.seed);
        if let Tables::Rising(rising) = &mut self.tables {
            // Spare tables have the old layout, and may be too many.
            rising.left.append(&mut rising.spares);
        }
        self.tokens.resize(options.token_window_ms);
        self.cache.set_capacity(options.cache_bytes as usize);
        (self.schema, self.options) = (schema, options);
    }

    /// Moves the slots of a group to the layout of the schema. Returns whether there was one.
    pub(super) fn convert_a_group(&mut self) -> bool {
        if !self.is_behind {
            return false;
        }
        let (layout, seed, schema) = (&self.shape.layout, self.shape.seed, &self.schema);
        let convert = |table: &mut Table| {
            if !table.is_converting() {
                table.begin_conversion(layout.clone());
            }
            table.is_converting() && {
                table.convert_group(schema, seed);
                true
            }
        };
        let converted = match &mut self.tables {
            Tables::Rising(rising) => {
                let hot = |body: &'_ mut Body| match body {
                    Body::Hot(table) => convert(table),
                    _ => false,
                };
                rising.parts.iter_mut().rev().map(|part| &mut part.body).any(hot)
            }
            Tables::Random(random) => random.tables_mut().into_iter().any(convert),
        };
        self.is_behind = converted;
        converted
    }
}
