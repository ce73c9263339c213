//! The commands of Redis that the scripts and the stores use, and no others.
//!
//! What lives here: one file per type of value, `table` with the names of all commands, `arguments` and `reply`. What may
//! not: the data (`keyspace/`), scripts (`scripting/`).

mod arguments;
mod hash;
mod list;
mod names;
mod ranges;
mod reply;
mod scan;
mod set;
mod sorted;
mod stream;
mod table;
mod text;

pub(crate) use arguments::{Arguments, float_text};
pub(crate) use table::{execute, is_write};
