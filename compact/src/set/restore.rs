//! Makes a set from the pieces of a dump.

use super::dump::{Work, kind};
use super::parts::{has_room, header, layout, tree, values};
use super::restoring::{Rebuilding, Restoring};
use super::rising::{Body, Part};
use super::serials;
use super::{CounterSet, Mode, Tables};
use crate::bytes::Reader;
use crate::cold::{ColdTable, Entry, FileId, PAGE_BYTES, PageWriter, PatchPart};
use crate::hash::Hash;
use crate::layout::PAD_BYTES;
use crate::record::Record;
use crate::refusal::{Damage, Refusal};
use crate::schema::FIELD_NUMBERS_MAX;
use crate::table::{Found, Table};
use crate::tokens::Mark;

/// Where the host keeps the files of cold tables that a restore makes.
pub trait PageFiles {
    /// Begins a file, and returns its identity and its name; or why not.
    fn create(&mut self) -> Result<(FileId, String), String>;
    /// Appends a page to a file that was begun.
    fn append(&mut self, file: FileId, page: &[u8; PAGE_BYTES]) -> Result<(), String>;
    /// Ends a file: its pages can be read from now on.
    fn finish(&mut self, file: FileId) -> Result<(), String>;
    /// Whether no file can be written, so that cold tables stay in memory.
    fn are_missing(&self) -> bool {
        false
    }
}

/// A host without files.
struct InMemory;

impl PageFiles for InMemory {
    fn create(&mut self) -> Result<(FileId, String), String> {
        Err("there are no files".to_owned())
    }

    fn append(&mut self, _: FileId, _: &[u8; PAGE_BYTES]) -> Result<(), String> {
        Err("there are no files".to_owned())
    }

    fn finish(&mut self, _: FileId) -> Result<(), String> {
        Err("there are no files".to_owned())
    }

    fn are_missing(&self) -> bool {
        true
    }
}

impl CounterSet {
    /// Takes the next piece of a dump. The first one makes the set.
    ///
    /// In [`Mode::Decide`] a piece has to follow the one before as in a dump, and a set that is complete takes none. In
    /// [`Mode::Apply`] a piece is taken wherever it can be: a primary has accepted it, and a snapshot does not
    /// say how far its set had come.
    ///
    /// # Errors
    /// `Complete`; `Invalid` for bytes that are no piece, or no piece that may follow, and where a file cannot be written. A piece
    /// that fails after a part of it was taken ends the restore: each later one is refused, so that no set seems complete that is not.
    pub fn restore(
        set: &mut Option<CounterSet>,
        mode: Mode,
        piece: &[u8],
        files: &mut dyn PageFiles,
    ) -> Result<(), Refusal> {
        let Some((piece, sum)) = piece.split_last_chunk() else { return Reader::broken() };
        if crc32c::crc32c(piece) != u32::from_le_bytes(*sum) {
            return Err(Refusal::invalid("this piece of a dump fails its checksum"));
        }
        let Some((kind, rest)) = piece.split_first() else { return Reader::broken() };
        let mut reader = Reader(rest);
        match (*kind, set) {
            (kind::HEADER, set @ None) => {
                let mut begun = header(&mut reader)?;
                begun.restoring = Restoring::Between;
                *set = Some(begun);
                Ok(())
            }
            (_, Some(set)) => set.take_piece(mode, *kind, &mut reader, files),
            _ => Reader::broken(),
        }
    }

    /// As [`CounterSet::restore`] in [`Mode::Apply`], for a host that can write no file: what the dump has in cold tables comes into
    /// tables in memory, which move to files later as others do.
    ///
    /// # Errors
    /// The same; and `Invalid` for the damage of a cold table, which no table in memory can have.
    pub fn restore_in_memory(set: &mut Option<CounterSet>, piece: &[u8]) -> Result<(), Refusal> {
        CounterSet::restore(set, Mode::Apply, piece, &mut InMemory)
    }

    /// Whether a piece was taken in part.
    pub fn has_failed(&self) -> bool {
        matches!(self.restoring, Restoring::Failed)
    }

    /// Whether pieces of the set are still to come.
    pub fn is_restoring(&self) -> bool {
        !matches!(self.restoring, Restoring::Complete)
    }

    fn take_piece(
        &mut self,
        mode: Mode,
        kind: u8,
        reader: &mut Reader<'_>,
        files: &mut dyn PageFiles,
    ) -> Result<(), Refusal> {
        if self.has_failed() {
            return Err(Refusal::invalid("an earlier piece of this dump failed; delete the key and restore all of it"));
        }
        if mode == Mode::Decide {
            self.follows(kind)?;
        }
        let mut work = Work::most(mode);
        let taken = match kind {
            // It checks everything before it changes something.
            kind::TABLE => return self.take_table(mode, reader, files),
            kind::TOKENS | kind::EQUAL_TOKENS => self.take_tokens(kind, reader, &mut work),
            kind::TREE => self.take_tree(mode, reader),
            kind::SLOTS => self.take_slots(reader, &mut work),
            kind::RECORDS => self.take_records(reader, files, &mut work),
            kind::HELD => self.take_held(reader, &mut work),
            kind::END => self.end_table(files),
            kind::FAILED if self.is_restoring() => {
                self.restoring = Restoring::Failed;
                return Ok(());
            }
            _ => return Reader::broken(),
        };
        if taken.is_err() && self.is_restoring() {
            self.restoring = Restoring::Failed;
        }
        taken
    }

    /// Whether a dump has a piece of this kind here.
    fn follows(&self, kind: u8) -> Result<(), Refusal> {
        use Restoring::{Between, Cold, Complete, Hot, Kept};
        if matches!(self.restoring, Complete) {
            return Err(Refusal::Complete);
        }
        let follows = match (kind, &self.restoring, &self.tables) {
            (kind::TOKENS | kind::EQUAL_TOKENS, Between, _) | (kind::TABLE, Between, Tables::Rising(_)) => true,
            (kind::TREE, Between, Tables::Random(random)) => random.is_new(),
            (kind::SLOTS | kind::RECORDS, Between, Tables::Random(_)) => true,
            (kind::SLOTS | kind::RECORDS, Hot, _) | (kind::RECORDS | kind::HELD, Cold(_), _) => true,
            (kind::RECORDS, Kept, _) => true,
            // A command may have made a table meanwhile.
            (kind::END, Cold(rebuilding), Tables::Rising(rising)) => rising.is_next(&rebuilding.part),
            (kind::END | kind::FAILED, ..) => true,
            _ => false,
        };
        if follows { Ok(()) } else { Err(Refusal::invalid("this piece of a dump does not follow the one before")) }
    }

    fn take_tokens(&mut self, kind: u8, reader: &mut Reader<'_>, work: &mut Work) -> Result<(), Refusal> {
        let begin_ms = reader.number()?;
        let ends_ms = match kind {
            kind::EQUAL_TOKENS => begin_ms.saturating_add(self.tokens.parts().0),
            _ => reader.number()?,
        };
        if begin_ms >= ends_ms {
            return Reader::broken();
        }
        while !reader.is_empty() {
            work.take(1)?;
            let bytes = reader.take(16)?;
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let high = u64::from(word(0)) | u64::from(word(4)) << 32;
            // Which of these times it is, only the mark says.
            let mark = Mark { high, low: word(8), content: word(12) };
            self.tokens.remember_in(begin_ms..ends_ms, ends_ms - 1, mark);
        }
        Ok(())
    }

    fn take_tree(&mut self, mode: Mode, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        let Tables::Random(random) = &mut self.tables else { return Reader::broken() };
        let mut leaves = 0;
        random.root = tree(reader, 0, &self.shape, mode, &mut leaves)?;
        (random.next_serial, random.leaves) = (leaves, u64::from(leaves));
        random.find_paths();
        if reader.is_empty() { Ok(()) } else { Reader::broken() }
    }

    fn take_table(&mut self, mode: Mode, reader: &mut Reader<'_>, files: &mut dyn PageFiles) -> Result<(), Refusal> {
        let Tables::Rising(rising) = &mut self.tables else { return Reader::broken() };
        let serial = serials::restored(reader.small()?, rising.parts.last().map(|last| last.serial));
        let first = reader.number()?;
        let (is_cold, origin) = (reader.number()? == 1, reader.number()?);
        let probe_max: u32 = reader.small()?;
        // Tables move to files from the lowest on: what looks for cold records relies on it.
        let is_above_hot = matches!(rising.parts.last(), Some(Part { body, .. }) if !matches!(body, Body::Cold(_)));
        let is_kept = is_cold && (files.are_missing() || is_above_hot);
        let table = if is_kept {
            // A cold table has neither an origin nor a `PROBE_MAX`.
            self.shape.table(first)
        } else {
            // The restore searches for the slot of each record again, so the table may have a lower bound than the dumped one.
            let probes = probe_max.clamp(1, self.options.probes_max() as u32);
            let table = Table::new(origin, self.shape.geometry, self.shape.layout.clone(), probes);
            // As the first table of a new set: a small set has no table.
            if rising.parts.is_empty() && !is_cold { table.without_memory() } else { table }
        };
        let part = Part { first, serial, body: Body::Hot(table) };
        has_room(mode, rising.parts.len() as u64 + 1)?;
        let is_open = matches!(self.restoring, Restoring::Cold(_));
        if !rising.is_next(&part) || is_open || probe_max > 64 {
            return Reader::broken();
        }
        if mode == Mode::Decide && is_cold && is_above_hot {
            return Err(Refusal::invalid("a cold table of a dump does not follow a hot one"));
        }
        let file = if is_cold && !is_kept { Some(files.create().map_err(Refusal::Invalid)?) } else { None };
        rising.next_serial = serial + 1;
        self.restoring = match file {
            None => {
                rising.begin();
                rising.push(part);
                if is_kept { Restoring::Kept } else { Restoring::Hot }
            }
            Some((file, name)) => {
                let (writer, held, damage) = (PageWriter::new(file), Vec::new(), Vec::new());
                Restoring::Cold(Box::new(Rebuilding { file, name, writer, last_id: None, held, damage, part }))
            }
        };
        Ok(())
    }

    fn take_slots(&mut self, reader: &mut Reader<'_>, work: &mut Work) -> Result<(), Refusal> {
        let layout = layout(reader)?;
        let shape_layout = self.shape.layout.clone();
        let is_same = layout == *shape_layout;
        let record_work = Work::of_slot(&layout, &shape_layout);
        let (mut id, mut padded) = (0_u64, vec![0; layout.bytes + PAD_BYTES]);
        while !reader.is_empty() {
            work.take(record_work)?;
            id = id.wrapping_add(reader.signed()? as u64);
            let bytes = reader.take(layout.bytes)?;
            let hash = Hash::of(id, self.shape.seed);
            let table = self.hot_table(id, hash)?;
            let is_new = is_same && table.has_layout(&shape_layout) && table.find(id, hash) == Found::Absent;
            if is_new && let Some(found) = table.insert_bytes(id, hash, bytes) {
                self.restored(id, found);
                continue;
            }
            padded[..layout.bytes].copy_from_slice(bytes);
            let values = layout.places().iter().map(|place| place.map_or(0, |place| place.read(&padded)));
            let record = Record::new(values.collect());
            self.put(id, hash, record)?;
        }
        Ok(())
    }

    fn take_records(
        &mut self,
        reader: &mut Reader<'_>,
        files: &mut dyn PageFiles,
        work: &mut Work,
    ) -> Result<(), Refusal> {
        let mut id = 0_u64;
        while !reader.is_empty() {
            id = id.wrapping_add(reader.signed()? as u64);
            let record = values(reader)?;
            work.take(Work::of_record(record.values().len()))?;
            match &mut self.restoring {
                Restoring::Cold(rebuilding) => {
                    if rebuilding.last_id.is_some_and(|last| last >= id) || id < rebuilding.part.first {
                        return Reader::broken();
                    }
                    rebuilding.last_id = Some(id);
                    let file = rebuilding.file;
                    let mut append = |page: &[u8; PAGE_BYTES]| files.append(file, page);
                    rebuilding.writer.push(id, &record, &mut append).map_err(Refusal::Invalid)?;
                }
                Restoring::Kept => self.keep(id, record)?,
                _ => self.put(id, Hash::of(id, self.shape.seed), record)?,
            }
        }
        Ok(())
    }

    fn take_held(&mut self, reader: &mut Reader<'_>, work: &mut Work) -> Result<(), Refusal> {
        if matches!(self.restoring, Restoring::Kept) {
            return Err(Refusal::invalid("a cold table with damaged pages cannot be kept in memory"));
        }
        let Restoring::Cold(rebuilding) = &mut self.restoring else { return Reader::broken() };
        while !reader.is_empty() {
            match reader.number()? {
                0 => {
                    let file = reader.text()?;
                    let (page, first, last) = (reader.small()?, reader.number()?, reader.number()?);
                    if first > last {
                        return Reader::broken();
                    }
                    work.take(Work::of_record(0))?;
                    rebuilding.damage.push(Damage { file, page, first, last });
                }
                1 => {
                    let id = reader.number()?;
                    let record = values(reader)?;
                    work.take(Work::of_record(record.values().len()))?;
                    rebuilding.held.push((id, Entry::Absolute(record)));
                }
                2 => {
                    let (id, parts): (u64, usize) = (reader.number()?, reader.small()?);
                    work.take(Work::of_record(parts))?;
                    let mut patch = Vec::new();
                    for _ in 0..parts.min(FIELD_NUMBERS_MAX) {
                        let number: u64 = reader.number()?;
                        let value = reader.signed()?;
                        let part = if number & 1 == 1 { PatchPart::Set(value) } else { PatchPart::Add(value) };
                        patch.push((u8::try_from(number >> 1).or_else(|_| Reader::broken())?, part));
                    }
                    rebuilding.held.push((id, Entry::Patch(patch.into_iter().collect())));
                }
                _ => return Reader::broken(),
            }
        }
        Ok(())
    }

    /// Ends the table that is open, or the set.
    fn end_table(&mut self, files: &mut dyn PageFiles) -> Result<(), Refusal> {
        let ended = match &self.restoring {
            Restoring::Hot | Restoring::Kept | Restoring::Cold(_) => Restoring::Between,
            Restoring::Between | Restoring::Complete | Restoring::Failed => Restoring::Complete,
        };
        let Restoring::Cold(rebuilding) = std::mem::replace(&mut self.restoring, ended) else { return Ok(()) };
        let Rebuilding { file, name, writer, held, damage, mut part, .. } = *rebuilding;
        let index = writer.finish(&mut |page: &[u8; PAGE_BYTES]| files.append(file, page)).map_err(Refusal::Invalid)?;
        files.finish(file).map_err(Refusal::Invalid)?;
        let mut cold = ColdTable::new(file, name, index);
        damage.iter().for_each(|damage| cold.add_damage(damage));
        held.into_iter().for_each(|(id, entry)| cold.restore(id, entry));
        part.body = Body::Cold(cold);
        let Tables::Rising(rising) = &mut self.tables else { return Reader::broken() };
        rising.begin();
        rising.push(part);
        Ok(())
    }

    fn hot_table(&mut self, id: u64, hash: Hash) -> Result<&mut Table, Refusal> {
        match &mut self.tables {
            Tables::Rising(rising) => {
                let Some(place) = rising.place(id) else { return Reader::broken() };
                match &mut rising.parts[place].body {
                    Body::Hot(table) => Ok(table),
                    _ => Reader::broken(),
                }
            }
            Tables::Random(random) => Ok(random.find_mut(id, hash).0),
        }
    }

    /// Gives a record of a cold table, which stays in memory, a place in the last table.
    fn keep(&mut self, id: u64, record: Record) -> Result<(), Refusal> {
        let (hash, record) = (Hash::of(id, self.shape.seed), self.schema.without_retired(record));
        let Tables::Rising(rising) = &mut self.tables else { return Reader::broken() };
        let Some(Part { first, body: Body::Hot(table), .. }) = rising.parts.last_mut() else { return Reader::broken() };
        if id < *first || table.find(id, hash) != Found::Absent {
            return Reader::broken();
        }
        if record.is_zero() {
            return Ok(());
        }
        if table.used == 0 && table.extend_len() == 0 {
            // The lowest id comes first. It can be far above the begin of the range: the first range of all begins at 0.
            table.origin = self.shape.origin(*first, id);
        }
        let found = table.adopt(id, hash, &self.shape.live(&record));
        self.restored(id, found);
        Ok(())
    }

    /// Stores a whole record in its table.
    fn put(&mut self, id: u64, hash: Hash, record: Record) -> Result<(), Refusal> {
        let record = self.schema.without_retired(record);
        let table = self.hot_table(id, hash)?;
        match table.find(id, hash) {
            Found::Absent if record.is_zero() => {}
            Found::Absent => match &mut self.tables {
                Tables::Rising(rising) => rising.adopt(id, hash, &record, &self.shape),
                Tables::Random(random) => {
                    let (table, _) = random.find_mut(id, hash);
                    table.start_for_new_id(&self.shape.numbers);
                    table.adopt(id, hash, &self.shape.live(&record));
                }
            },
            found => {
                let values: Vec<(u8, i64)> = record.numbered().collect();
                table.store(id, hash, found, &values);
            }
        }
        Ok(())
    }

    fn restored(&mut self, id: u64, found: Found) {
        if let Tables::Rising(rising) = &mut self.tables {
            rising.restored(id, found, &self.shape);
        }
    }
}
