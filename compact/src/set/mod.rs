//! A counter set: the value of one key.
//!
//! What lives here: the commands as functions, over tables by range ([`rising`]) or by hash ([`random`]). What may not: anything about
//! how a client writes a command.

mod alter;
mod dump;
mod jobs;
mod left;
mod outliers;
mod parts;
mod random;
mod read;
mod recent;
mod restore;
mod restoring;
mod rising;
mod serials;
mod shape;
mod show;
#[cfg(test)]
mod tests;
mod walk;
mod write;

pub use alter::Change;
pub use dump::Dump;
pub use jobs::{Job, SpillJob};
pub use restore::PageFiles;
pub use show::{Figure, Figures, Totals};
pub use walk::Scan;

use crate::IDS_MAX;
use crate::cold::{Fetched, Need, RecordCache};
use crate::hash::Hash;
use crate::options::{Options, Order};
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::table::{Found, Table};
use crate::tokens::{Admission, Token, Tokens};
use random::Random;
use restoring::Restoring;
use rising::{Body, Rising};
use shape::Shape;

/// Who carries out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A primary: it may refuse.
    Decide,
    /// A replica, or an engine that loads its log: what the primary has accepted is applied.
    Apply,
}

/// The value of one key: a schema, tables, and the tokens of increments.
#[derive(Debug)]
pub struct CounterSet {
    schema: Schema,
    options: Options,
    shape: Shape,
    tables: Tables,
    tokens: Tokens,
    cache: RecordCache,
    /// Values to store, kept so that a command allocates nothing.
    changes: Vec<(u8, i64)>,
    /// The greatest serial of a table that may have an older layout than that of the schema. Such tables are converted in the background.
    behind: Option<u32>,
    restoring: Restoring,
}

#[derive(Debug)]
enum Tables {
    Rising(Rising),
    Random(Random),
}

/// Where an id is, or may be put.
enum Home<'a> {
    /// In slots that may change.
    Hot(&'a mut Table, Found),
    /// In the part of this place, whose slots do not change.
    Part(usize),
    /// There is no table yet.
    Nowhere,
}

impl Tables {
    #[inline]
    fn home(&mut self, id: u64, hash: Hash) -> Home<'_> {
        match self {
            Tables::Rising(rising) => {
                let Some(place) = rising.place(id) else { return Home::Nowhere };
                match &mut rising.parts[place].body {
                    Body::Hot(table) => {
                        let found = table.find(id, hash);
                        Home::Hot(table, found)
                    }
                    _ => Home::Part(place),
                }
            }
            Tables::Random(random) => {
                let (table, found) = random.find_mut(id, hash);
                Home::Hot(table, found)
            }
        }
    }

    /// The table whose slots an id may be in.
    #[inline]
    fn slots_of(&self, id: u64, hash: Hash) -> Option<&Table> {
        match self {
            Tables::Rising(rising) => match &rising.parts[rising.place(id)?].body {
                Body::Hot(table) => Some(table),
                Body::Frozen(table, ..) => Some(table),
                Body::Cold(_) | Body::Moving => None,
            },
            Tables::Random(random) => Some(random.newest(hash)),
        }
    }

    fn make_room(&mut self, id: u64, hash: Hash, shape: &Shape, mode: Mode) -> Result<(&mut Table, Found), Refusal> {
        let may_refuse = mode == Mode::Decide;
        match self {
            Tables::Rising(rising) => rising.make_room(id, hash, shape, may_refuse),
            Tables::Random(random) => random.make_room(id, hash, shape, may_refuse),
        }
    }
}

impl CounterSet {
    /// An empty set. `seed` is random, so that no client can choose ids that collide.
    pub fn new(schema: Schema, options: Options, seed: u64) -> Result<CounterSet, Refusal> {
        options.check()?;
        let shape = Shape::new(&schema, &options, seed);
        let tables = match options.order {
            Order::Rising => Tables::Rising(Rising::default()),
            Order::Random => Tables::Random(Random::new(&shape)),
        };
        let (tokens, cache) = (Tokens::new(options.token_window_ms), RecordCache::new(options.cache_bytes as usize));
        Ok(CounterSet {
            schema,
            options,
            shape,
            tables,
            tokens,
            cache,
            changes: Vec::new(),
            behind: None,
            restoring: Restoring::Complete,
        })
    }

    /// The fields.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The pages to read before these ids can be read or written, with the ids to search on each; in order, each once. Empty at once
    /// where nothing is cold. The cache takes up what earlier commands read, so that it does not change while the command of these ids
    /// runs.
    pub fn unread(&mut self, ids: impl Iterator<Item = u64>, fetched: &Fetched) -> Vec<Need> {
        let Tables::Rising(rising) = &self.tables else { return Vec::new() };
        // Tables move to files from the lowest on.
        if !matches!(rising.parts.first(), Some(part) if matches!(part.body, Body::Cold(_))) {
            return Vec::new();
        }
        self.cache.settle();
        self.needs(ids, fetched)
    }

    /// As [`CounterSet::unread`], for a command that does not run at once: what the cache has for it is added to what was fetched,
    /// because the cache may forget it before the command runs.
    pub fn gather(&mut self, ids: impl Iterator<Item = u64> + Clone, fetched: &mut Fetched) -> Vec<Need> {
        if let Tables::Rising(rising) = &self.tables {
            for id in ids.clone().take(IDS_MAX) {
                if let Some(place) = rising.place(id)
                    && let Body::Cold(cold) = &rising.parts[place].body
                {
                    cold.take_cached(id, fetched, &self.cache);
                }
            }
        }
        self.needs(ids, fetched)
    }

    fn needs(&self, ids: impl Iterator<Item = u64>, fetched: &Fetched) -> Vec<Need> {
        let Tables::Rising(rising) = &self.tables else { return Vec::new() };
        let mut needs: Vec<Need> = ids
            .take(IDS_MAX)
            .filter_map(|id| match &rising.parts[rising.place(id)?].body {
                Body::Cold(cold) => {
                    let page = cold.page_needed(id, fetched, &self.cache)?;
                    Some(Need { page, id: Some(id) })
                }
                _ => None,
            })
            .collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Decides whether a command with a token is to be carried out. The host calls [`CounterSet::remember`] once it has been.
    pub fn admit(&self, mode: Mode, token: Token<'_>, now_ms: u64) -> Result<Admission, Refusal> {
        match mode {
            // The primary has decided.
            Mode::Apply => Ok(Admission::New),
            Mode::Decide => {
                let window_ms = self.options.token_window_ms;
                self.tokens.admit(token, window_ms, now_ms, self.shape.seed).map(|(admission, _)| admission)
            }
        }
    }

    /// Remembers the token of a command that was carried out.
    pub fn remember(&mut self, token: Token<'_>) {
        let mark = self.tokens.mark(token, self.shape.seed);
        self.tokens.remember(token.time_ms, mark);
    }
}
