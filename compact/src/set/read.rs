//! Reading records.

use super::rising::{Body, absolute};
use super::{BATCH, CounterSet, Home, Tables};
use crate::cold::{Fetched, Source};
use crate::hash::Hash;
use crate::options::PROBES_MAX;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::table::{Approach, Table, touch_lines};

/// Groups of a search that are touched. In a full table, a search examines as many groups as it may.
const WARM_GROUPS: u64 = PROBES_MAX;

impl CounterSet {
    /// Appends all live fields of an id, in the order of the schema.
    ///
    /// # Errors
    /// `Cold` if the record's page is needed and not among `fetched`; `Damaged` if it cannot be trusted.
    #[inline]
    pub fn read(&mut self, id: u64, fetched: &Fetched, out: &mut Vec<i64>) -> Result<(), Refusal> {
        let hash = Hash::of(id, self.shape.seed);
        match self.tables.home(id, hash) {
            Home::Hot(table, found) => table.append_values(id, hash, found, &self.shape.numbers, out),
            Home::Nowhere => out.extend(self.shape.numbers.iter().map(|_| 0)),
            Home::Part(place) => {
                let numbers = &self.shape.numbers;
                let append = |record: &Record| out.extend(numbers.iter().map(|number| record.get(*number)));
                let source = Source { fetched, cache: &mut self.cache, keeps: true };
                self.tables.read_part(place, id, hash, source, append)?;
            }
        }
        Ok(())
    }

    /// The value of one live field of an id. Errors as of [`CounterSet::read`].
    #[inline]
    pub fn read_field(&mut self, id: u64, number: u8, fetched: &Fetched) -> Result<i64, Refusal> {
        let hash = Hash::of(id, self.shape.seed);
        match self.tables.home(id, hash) {
            Home::Hot(table, found) => Ok(table.value(id, hash, found, number)),
            Home::Nowhere => Ok(0),
            Home::Part(place) => {
                let source = Source { fetched, cache: &mut self.cache, keeps: true };
                self.tables.read_part(place, id, hash, source, |record| record.get(number))
            }
        }
    }

    /// Appends all live fields of each id. Errors as of [`CounterSet::read`]; then `out` is as it was.
    pub fn read_many(&mut self, ids: &[u64], fetched: &Fetched, out: &mut Vec<i64>) -> Result<(), Refusal> {
        let begin = out.len();
        out.reserve(ids.len() * self.shape.numbers.len());
        for batch in ids.chunks(BATCH) {
            self.warm(batch, fetched);
            for id in batch {
                if let Err(refusal) = self.read(*id, fetched, out) {
                    out.truncate(begin);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    /// Touches the memory of the group that an id is probably in: the cache misses of its tags and of its slot then overlap, and with
    /// what the caller does until it reads.
    #[inline]
    pub fn approach(&self, id: u64) {
        let hash = Hash::of(id, self.shape.seed);
        if let Some(slots) = self.tables.slots_of(id, hash) {
            slots.touch_group(hash);
        }
    }

    /// The memory of the group that an id is probably in, for a host that can load it early; or nothing.
    #[inline]
    pub fn memory_of(&self, id: u64) -> &[u8] {
        let hash = Hash::of(id, self.shape.seed);
        self.tables.slots_of(id, hash).map_or(&[], |slots| slots.first_group(hash))
    }

    /// Touches the memory that a batch of ids will need, so that the cache misses of a batch overlap: first all tags, then all
    /// slots. The places are computed before: a processor looks only some hundred instructions ahead, so that loads overlap only if
    /// little lies between them.
    ///
    /// This includes fetched records: another thread has written them, so they are not in this core's cache.
    pub fn warm(&self, ids: &[u64], fetched: &Fetched) {
        if !fetched.is_empty() {
            self.warm_fetched(ids, fetched);
        }
        self.warm_in(ids, |id, hash| self.tables.slots_of(id, hash));
        if let Tables::Rising(rising) = &self.tables
            && let Some(Body::Hot(last)) = rising.parts.last().map(|last| &last.body)
        {
            last.touch_far(ids.iter().map(|id| (*id, Hash::of(*id, self.shape.seed))));
        }
        if let Tables::Random(random) = &self.tables
            && random.is_splitting()
        {
            self.warm_in(ids, |_, hash| random.older(hash));
        }
    }

    fn warm_fetched(&self, ids: &[u64], fetched: &Fetched) {
        let Tables::Rising(rising) = &self.tables else { return };
        for batch in ids.chunks(BATCH) {
            let mut records = [None; BATCH];
            for (id, record) in batch.iter().zip(&mut records) {
                if let Some(place) = rising.place(*id)
                    && let Body::Cold(cold) = &rising.parts[place].body
                {
                    cold.touch_overlays(*id);
                    *record = fetched.record(cold.file(), *id);
                }
            }
            let values = records.into_iter().flatten().filter_map(|record| record.values().first());
            std::hint::black_box(values.fold(0, |all, value| all ^ value));
        }
    }

    fn warm_in<'a>(&self, ids: &[u64], slots_of: impl Fn(u64, Hash) -> Option<&'a Table>) {
        for batch in ids.chunks(BATCH) {
            let mut searches = [None; BATCH];
            let mut lines: [&[u8]; BATCH] = [&[]; BATCH];
            for (id, search) in batch.iter().zip(&mut searches) {
                let hash = Hash::of(*id, self.shape.seed);
                *search = slots_of(*id, hash).map(|slots| slots.approach(hash));
            }
            for _ in 0..WARM_GROUPS {
                touch_lines(searches.iter().flatten().map(|search| search.line));
                let mut is_done = true;
                for (search, line) in searches.iter_mut().zip(&mut lines) {
                    match search.take().map(Approach::go_on) {
                        Some(Ok(slot)) => *line = slot,
                        Some(Err(next)) => (*search, is_done) = (Some(next), false),
                        None => {}
                    }
                }
                if is_done {
                    break;
                }
            }
            touch_lines(lines.into_iter());
        }
    }

    /// The record of an id in a part whose slots do not change, for a command that writes it.
    pub(super) fn record_of_part(
        &mut self,
        place: usize,
        id: u64,
        hash: Hash,
        fetched: &Fetched,
    ) -> Result<Record, Refusal> {
        let source = Source { fetched, cache: &mut self.cache, keeps: false };
        self.tables.read_part(place, id, hash, source, Record::clone)
    }
}

impl Tables {
    /// Gives the record of an id in a part whose slots do not change to `with`.
    pub(super) fn read_part<T>(
        &mut self,
        place: usize,
        id: u64,
        hash: Hash,
        source: Source<'_>,
        with: impl FnOnce(&Record) -> T,
    ) -> Result<T, Refusal> {
        let Tables::Rising(rising) = self else { unreachable!("only rising sets have parts") };
        match &mut rising.parts[place].body {
            Body::Hot(table) => {
                let found = table.find(id, hash);
                Ok(with(&table.record(id, hash, found)))
            }
            Body::Frozen(table, overlay, _) => Ok(match absolute(overlay, id) {
                Some(record) => with(record),
                None => {
                    let found = table.find(id, hash);
                    with(&table.record(id, hash, found))
                }
            }),
            Body::Cold(cold) => cold.read(id, source, with),
            Body::Moving => unreachable!("a body is replaced within one function"),
        }
    }
}
