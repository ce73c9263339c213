//! The file `names`: which slot has which counter. Records are appended, and are on disk before a slot is used.

use super::error::{IoContext as _, LocalError};
use super::files;
use super::frames::{Fields, HEAD_BYTES, Records, put_text, record};
use super::options::check_names;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const NAME: &str = "names";
const MAGIC: u64 = u64::from_le_bytes(*b"TSNAMES1");
/// The first record: four numbers.
const HEADER_BYTES: usize = HEAD_BYTES + 4 * 8;
/// The kinds of records after the first one.
const GIVEN: u8 = 1;
const FREED: u8 = 2;
/// Names in one record of a list that is written again.
const GIVEN_MAX: usize = 1_000;
/// A list below this size is not written again.
const SMALL_BYTES: u64 = 1 << 20;
/// The bits of a mark that are the length.
const LENGTH_BITS: u32 = 40;

/// A slot and the counter that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) slot: u32,
    pub(super) namespace: String,
    pub(super) counter: String,
}

/// The open file.
pub(super) struct Names {
    file: File,
    folder: PathBuf,
    folder_id: u64,
    /// Rises by one each time that the list is written again.
    epoch: u64,
    /// Up to where the records are complete and on disk.
    length: u64,
    /// What the list would have if it was written again.
    live_bytes: u64,
    /// The file has a new name, which may not be on disk.
    is_renamed: bool,
}

/// A list with these records. It is written as a whole, and says how long it then is; lists of earlier versions do not.
fn whole_list(folder_id: u64, epoch: u64, records: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + records.len()) as u64;
    let header = record(&[MAGIC, folder_id, epoch, length].map(u64::to_le_bytes).concat());
    [&header[..], records].concat()
}

fn given(names: &[Given]) -> Vec<u8> {
    let mut content = vec![GIVEN];
    for name in names {
        content.extend(name.slot.to_le_bytes());
        put_text(&mut content, &name.namespace);
        put_text(&mut content, &name.counter);
    }
    record(&content)
}

fn bytes_of(name: &Given) -> u64 {
    (6 + name.namespace.len() + name.counter.len()) as u64
}

impl Names {
    /// Makes an empty list, and returns its mark.
    pub(super) fn create(folder: &Path, folder_id: u64) -> Result<u64, LocalError> {
        let path = folder.join(NAME);
        let content = whole_list(folder_id, 1, &[]);
        files::write_unfinished(folder, NAME, &content).when("write", &path)?;
        files::finish(folder, NAME).when("rename", &path)?;
        files::sync_folder(folder).when("write", folder)?;
        Ok(1 << LENGTH_BITS | content.len() as u64)
    }

    /// Whether the folder has a list with names.
    pub(super) fn exist_in(folder: &Path) -> Result<bool, LocalError> {
        // A list of an earlier version has a shorter header. With a name it is longer than this, too.
        Ok(files::read(&folder.join(NAME))?.is_some_and(|content| content.len() > HEADER_BYTES))
    }

    /// Reads the list. `mark` is the one of the last record that was certainly written.
    pub(super) fn open(
        folder: &Path,
        folder_id: u64,
        mark: u64,
        slots: usize,
    ) -> Result<(Names, Vec<Given>), LocalError> {
        let path = folder.join(NAME);
        let damaged = |what: &str| LocalError::damaged(&path, what);
        let bytes = files::read(&path)?.ok_or_else(|| damaged("the file is missing"))?;
        let mut records = Records::new(&bytes);
        let first = records.next().ok_or_else(|| damaged("it does not begin as this library begins it"))?;
        let mut fields = Fields::new(first);
        if (fields.u64(), fields.u64()) != (Some(MAGIC), Some(folder_id)) {
            return Err(damaged("it does not belong to the file cells"));
        }
        let epoch = fields.u64().unwrap_or(0);
        let mut list: Vec<Option<Given>> = vec![None; slots];
        for content in records.by_ref() {
            apply(content, &mut list).ok_or_else(|| damaged("a record has an unknown content"))?;
        }
        let (length, marked) = (records.at as u64, mark & ((1 << LENGTH_BITS) - 1));
        let is_complete = match epoch.wrapping_sub(mark >> LENGTH_BITS) {
            0 => length >= marked,
            // The list was written again, and the new mark was not set, or was not on disk when the machine lost its power. What was
            // written as a whole is complete; what follows was appended.
            1 => length >= fields.u64().unwrap_or(bytes.len() as u64),
            _ => false,
        };
        if !is_complete {
            return Err(damaged(&format!("the record at byte {length} is damaged or missing")));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).when("open", &path)?;
        // What follows was being written when the process died; no slot of it was used.
        file.set_len(length).when("cut", &path)?;
        // These records must be on disk before the mark in the cells that counts on them.
        file.sync_data().when("write", &path)?;
        let names: Vec<Given> = list.into_iter().flatten().collect();
        let live_bytes = names.iter().map(bytes_of).sum();
        let (folder, is_renamed) = (folder.to_owned(), true);
        Ok((Names { file, folder, folder_id, epoch, length, live_bytes, is_renamed }, names))
    }

    /// What the header of the cells has to remember.
    pub(super) fn mark(&self) -> u64 {
        self.epoch << LENGTH_BITS | self.length
    }

    /// Gives slots to counters. They may be used when this has returned.
    pub(super) fn give(&mut self, names: &[Given]) -> io::Result<()> {
        self.append(&given(names))?;
        self.live_bytes += names.iter().map(bytes_of).sum::<u64>();
        Ok(())
    }

    /// Takes slots away. They may be given again when this has returned.
    pub(super) fn free(&mut self, names: &[Given]) -> io::Result<()> {
        let mut content = vec![FREED];
        content.extend(names.iter().flat_map(|name| name.slot.to_le_bytes()));
        self.append(&record(&content))?;
        self.live_bytes -= names.iter().map(bytes_of).sum::<u64>().min(self.live_bytes);
        Ok(())
    }

    /// After an error the next record takes the place of this one.
    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        self.sync_name()?;
        let written = self.file.write_all_at(record, self.length).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // Otherwise the next process could read this record and free a slot that is in use. If this fails, too, nothing more
            // can be done.
            drop(self.file.set_len(self.length));
            return written;
        }
        self.length += record.len() as u64;
        Ok(())
    }

    /// Whether most of the list are names that are gone.
    pub(super) fn is_long(&self) -> bool {
        self.length > SMALL_BYTES && self.length > self.live_bytes * 4
    }

    /// Writes the list again with the names that it has. After an error the list is the one of before. The caller remembers the new mark
    /// when [`sync_name`](Names::sync_name) has returned, and has it on disk before it calls this again.
    pub(super) fn shorten(&mut self, names: &[Given]) -> io::Result<()> {
        let epoch = self.epoch + 1;
        let records: Vec<u8> = names.chunks(GIVEN_MAX).flat_map(given).collect();
        let content = whole_list(self.folder_id, epoch, &records);
        let file = files::write_unfinished(&self.folder, NAME, &content)?;
        files::finish(&self.folder, NAME)?;
        (self.file, self.epoch, self.length) = (file, epoch, content.len() as u64);
        self.live_bytes = names.iter().map(bytes_of).sum();
        self.is_renamed = true;
        Ok(())
    }

    /// After a loss of power, what is appended must be in the list that the folder then has.
    pub(super) fn sync_name(&mut self) -> io::Result<()> {
        if self.is_renamed {
            files::sync_folder(&self.folder)?;
            self.is_renamed = false;
        }
        Ok(())
    }
}

fn apply(content: &[u8], list: &mut [Option<Given>]) -> Option<()> {
    let mut fields = Fields::new(content);
    let kind = fields.u8()?;
    while !fields.is_at_end() {
        let slot = fields.u32()?;
        let entry = list.get_mut(slot as usize)?;
        *entry = match kind {
            GIVEN => {
                let (namespace, counter) = (fields.text()?.to_owned(), fields.text()?.to_owned());
                check_names(&namespace, &counter).ok()?;
                Some(Given { slot, namespace, counter })
            }
            FREED => None,
            _ => return None,
        };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(slot: u32, counter: &str) -> Given {
        Given { slot, namespace: "ads".to_owned(), counter: counter.to_owned() }
    }

    fn open(folder: &Path, mark: u64) -> Result<(Names, Vec<Given>), LocalError> {
        Names::open(folder, 7, mark, 10)
    }

    #[test]
    fn l2_names_outlive_the_process_and_a_torn_record_at_the_end_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = Names::create(folder.path(), 7).expect("a list");
        assert!(!Names::exist_in(folder.path()).expect("a list"));
        let (mut names, none) = open(folder.path(), empty).expect("the list");
        assert!(none.is_empty());
        names.give(&[name(0, "a"), name(1, "b")]).expect("room");
        names.free(&[name(0, "a")]).expect("room");
        let mark = names.mark();
        names.give(&[name(0, "c")]).expect("room");
        assert!(Names::exist_in(folder.path()).expect("a list"));
        let path = folder.path().join(NAME);
        let all = std::fs::read(&path).expect("the list");
        assert_eq!(open(folder.path(), mark).expect("the list").1, [name(0, "c"), name(1, "b")]);
        for length in 0..all.len() {
            std::fs::write(&path, &all[..length]).expect("a cut");
            let marked = (mark & 0xff_ffff) as usize;
            match open(folder.path(), mark) {
                Ok((names, list)) => assert!(length >= marked && list == [name(1, "b")] && names.mark() == mark),
                Err(error) => assert!(length < marked && matches!(error, LocalError::Damaged { .. }), "{error}"),
            }
        }
        std::fs::write(&path, &all).expect("the list");
        assert!(matches!(Names::open(folder.path(), 8, mark, 10), Err(LocalError::Damaged { .. })), "another folder");
        assert!(matches!(Names::open(folder.path(), 7, mark, 1), Err(LocalError::Damaged { .. })), "fewer slots");
    }

    /// A list that is written again without its first name, and then gets another one; and its marks before and after it was written again.
    fn written_again(folder: &Path) -> (Names, u64, u64) {
        let mark = Names::create(folder, 7).expect("a list");
        let (mut names, _) = open(folder, mark).expect("the list");
        names.give(&[name(0, "a"), name(1, "b")]).expect("room");
        let before = names.mark();
        names.shorten(&[name(1, "b")]).expect("room");
        let after = names.mark();
        names.give(&[name(2, "c")]).expect("room");
        (names, before, after)
    }

    #[test]
    fn l2_a_list_that_was_written_again_is_complete_or_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut names, before, after) = written_again(folder.path());
        for mark in [before, after] {
            assert_eq!(open(folder.path(), mark).expect("the list").1, [name(1, "b"), name(2, "c")]);
        }
        names.shorten(&[]).expect("room");
        assert!(open(folder.path(), after).is_ok());
        assert!(open(folder.path(), before).is_err(), "the mark is two lists behind");
    }

    /// The new mark is not on disk yet.
    #[test]
    fn l2_a_loss_of_power_in_an_append_cuts_the_list_to_what_was_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, before, after) = written_again(folder.path());
        let path = folder.path().join(NAME);
        let all = std::fs::read(&path).expect("the list");
        let whole = (after & 0xff_ffff) as usize;
        // What was not written is missing, or the file has zeros in its place.
        let sizes = (0..all.len()).flat_map(|length| [(length, length), (length, all.len() + 8)]);
        for (length, size) in sizes {
            let mut found = all[..length].to_vec();
            found.resize(size, 0);
            std::fs::write(&path, &found).expect("a cut");
            match open(folder.path(), before) {
                Ok((names, list)) => {
                    let is_cut = list == [name(1, "b")] && names.mark() == after;
                    assert!(length >= whole && is_cut, "{length} of {size} bytes");
                    assert_eq!(std::fs::metadata(&path).expect("the list").len(), whole as u64);
                }
                Err(error) => {
                    let is_damaged = matches!(error, LocalError::Damaged { .. });
                    assert!(length < whole && is_damaged, "{length} of {size} bytes: {error}");
                }
            }
        }
    }

    #[test]
    fn l2_a_list_of_an_earlier_version_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let header = record(&[MAGIC, 7, 2].map(u64::to_le_bytes).concat());
        let (before, of_header) = (1_u64 << LENGTH_BITS, (2_u64 << LENGTH_BITS) + header.len() as u64);
        let path = folder.path().join(NAME);
        std::fs::write(&path, &header).expect("a list");
        assert!(!Names::exist_in(folder.path()).expect("a list"));
        let list = [header, given(&[name(1, "b")])].concat();
        std::fs::write(&path, &list).expect("a list");
        assert!(Names::exist_in(folder.path()).expect("a list"));
        for mark in [before, of_header] {
            assert_eq!(open(folder.path(), mark).expect("the list").1, [name(1, "b")]);
        }
        std::fs::write(&path, &list[..list.len() - 1]).expect("a cut");
        assert!(open(folder.path(), before).is_err(), "it does not say how much of it was written as a whole");
        assert_eq!(open(folder.path(), of_header).expect("the list").1, []);
    }
}
