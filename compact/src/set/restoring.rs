//! How far a restore has come.

use super::rising::Part;
use crate::cold::{Entry, FileId, PageWriter};
use crate::refusal::Damage;

/// How far the pieces of a dump have come. Each piece is a separate command, so a set may stay at any of these.
#[derive(Debug, Default)]
pub(crate) enum Restoring {
    /// All of the set is there.
    #[default]
    Complete,
    /// No table is open. Of a set by hash, the records come here.
    Between,
    /// The records of the last table come.
    Hot,
    /// The same of a cold table that stays in memory.
    Kept,
    /// The records of a cold table come, which the set does not have yet.
    Cold(Box<Rebuilding>),
    /// A piece was taken in part, so that the set lacks something.
    Failed,
}

/// The cold table that a restore has begun.
pub(crate) struct Rebuilding {
    pub(crate) file: FileId,
    pub(crate) name: String,
    pub(crate) writer: PageWriter,
    pub(crate) last_id: Option<u64>,
    pub(crate) held: Vec<(u64, Entry)>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) part: Part,
}

impl std::fmt::Debug for Rebuilding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Rebuilding").field("name", &self.name).finish_non_exhaustive()
    }
}
