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
use crate::cold::{Base, Fetched, FileId, Need, RecordCache};
use crate::hash::Hash;
use crate::options::{Options, Order};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::table::{Found, Table};
use crate::tokens::{Admission, Token, Tokens};
use random::Random;
use restoring::Restoring;
use rising::{Body, Rising};
use shape::Shape;
use std::sync::Arc;

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
    /// Replaced by a new one whenever an id may need a page that it did not need before. What a command has gathered is incomplete then.
    files: Arc<()>,
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

    /// Whether some are in files. Tables move to files from the lowest on.
    fn have_files(&self) -> bool {
        let Tables::Rising(rising) = self else { return false };
        matches!(rising.parts.first(), Some(part) if matches!(part.body, Body::Cold(_)))
    }

    fn make_room(&mut self, id: u64, hash: Hash, shape: &Shape, mode: Mode) -> Result<(&mut Table, Found), Refusal> {
        let may_refuse = mode == Mode::Decide;
        match self {
            Tables::Rising(rising) => rising.make_room(id, hash, shape, may_refuse),
            Tables::Random(random) => random.make_room(id, hash, shape, may_refuse),
        }
    }
}

/// A record that the cache has.
type Cached<'a> = (FileId, u64, &'a Record);

/// How many ids are prefetched together.
pub(crate) const BATCH: usize = 32;

/// Where the records of some ids are.
#[derive(Default)]
struct Location<'a> {
    needs: Vec<Need>,
    /// Records that the cache has.
    cached: Vec<Cached<'a>>,
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
            files: Arc::default(),
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

    /// The pages to read before these ids can be read or written, with the ids to search on each; in order, each once. Empty, without a
    /// search, if no table is in a file, or if everything was gathered for these ids. Pending records of earlier commands are added to
    /// the cache first, so that it does not change while the command of these ids runs.
    pub fn unread(&mut self, ids: impl Iterator<Item = u64>, fetched: &Fetched) -> Vec<Need> {
        if fetched.has_all(&self.files) || !self.tables.have_files() {
            return Vec::new();
        }
        self.cache.settle();
        self.locate(ids, fetched).needs
    }

    /// As [`CounterSet::unread`], for a command about which nothing is known yet. `along` gets what the cache has for a command that has to
    /// wait, because the cache may forget that before the command runs.
    pub fn first_unread(&mut self, ids: &[u64], along: &mut Fetched) -> Vec<Need> {
        if !self.tables.have_files() {
            return Vec::new();
        }
        self.cache.settle();
        let Location { cached, needs } = self.locate(ids.iter().copied(), along);
        if !needs.is_empty() {
            self.take_along(&needs, cached, along);
        }
        needs
    }

    /// As [`CounterSet::unread`], for a command that waits: it takes along what the cache has for it.
    pub fn gather(&self, ids: impl Iterator<Item = u64>, fetched: &mut Fetched) -> Vec<Need> {
        let Location { needs, cached } = self.locate(ids, fetched);
        self.take_along(&needs, cached, fetched);
        needs
    }

    /// Whether all is known for the ids of a command that was gathered. This locates no id: what was gathered stays complete until
    /// `files` is replaced.
    pub fn is_complete(&self, fetched: &Fetched) -> bool {
        fetched.has_all(&self.files)
    }

    fn take_along(&self, needs: &[Need], cached: Vec<Cached<'_>>, fetched: &mut Fetched) {
        cached.into_iter().for_each(|(file, id, record)| fetched.add_cached(file, id, record));
        fetched.await_more(self.files.clone(), needs.len());
    }

    /// Locates these ids.
    fn locate(&self, ids: impl Iterator<Item = u64>, fetched: &Fetched) -> Location<'_> {
        let mut location = Location::default();
        let Tables::Rising(rising) = &self.tables else { return location };
        let mut ids = ids.take(IDS_MAX);
        loop {
            // The cache misses of a batch overlap.
            let mut batch = [(0, None); BATCH];
            let mut count = 0;
            for (entry, id) in batch.iter_mut().zip(ids.by_ref()) {
                let cold = rising.place(id).and_then(|place| match &rising.parts[place].body {
                    Body::Cold(cold) => Some(cold),
                    _ => None,
                });
                cold.into_iter().for_each(|cold| {
                    cold.touch_overlays(id);
                    self.cache.touch(cold.file(), id);
                });
                *entry = (id, cold);
                count += 1;
            }
            for (id, cold) in batch.into_iter().take(count) {
                let Some(cold) = cold else { continue };
                match cold.base_of(id, fetched, &self.cache) {
                    Base::Known => {}
                    Base::Cached(record) => location.cached.push((cold.file(), id, record)),
                    Base::OnPage(page) => location.needs.push(Need { page, id: Some(id) }),
                }
            }
            if count < BATCH {
                break;
            }
        }
        location.needs.sort_unstable();
        location.needs.dedup();
        location
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
