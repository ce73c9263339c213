//! The files of cold tables. They are swap space: what they hold is in the engine's snapshot and log too, so they are deleted when
//! they are replaced, when the engine stops, and when it starts.
//!
//! Each file is locked while its process lives, so that processes may share a folder.

use crate::context::random;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tallystone_compact::{FileId, PAGE_BYTES, Page, PageFault, PageFiles, PageRef};

const PREFIX: &str = "tallystone-";
const SUFFIX: &str = ".cold";
/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 64 * PAGE_BYTES;
/// The time until files of another process are examined again: at first, and at most. They may be those of an engine that lives.
const SWEEP_FIRST: Duration = Duration::from_secs(1);
const SWEEP_LAST: Duration = Duration::from_secs(60);

static FOLDER: OnceLock<PathBuf> = OnceLock::new();
/// Files that are open.
pub(crate) static OPEN: AtomicU64 = AtomicU64::new(0);

/// The least number (file descriptor) of these files. The engine serves no client whose number is above `maxclients` and 128, so the low
/// numbers are left to clients.
static LOWEST: AtomicI32 = AtomicI32::new(0);
/// As much as a limit of open files can be, for one that is infinite; and the highest [`LOWEST`], because a fork copies a table up to the
/// greatest number in use.
const LIMIT_MAX: u64 = 1 << 20;
const LOWEST_MAX: u64 = 1 << 16;

/// Lets the process open as many files as its hard limit allows: each cold table has one. Returns for how many cold tables that is.
pub(crate) fn raise_open_files_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let of = |limit: Option<u64>| limit.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    let (before, now) = (of(limit.current), of(if is_raised { limit.maximum } else { limit.current }));
    // The engine has raised the limit to what its clients need, if it was lower.
    let lowest = (2 * before).min(LOWEST_MAX).min(now / 2);
    LOWEST.store(i32::try_from(lowest).unwrap_or(0), Relaxed);
    now - lowest
}

/// Takes a folder for the files, and removes those whose process is gone. Returns how many, and those that a process holds.
pub(crate) fn open_folder(folder: &Path) -> Result<(usize, Vec<PathBuf>), String> {
    let failed = |error: std::io::Error| format!("the folder '{}' for cold tables: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let entries = std::fs::read_dir(folder).map_err(failed)?.flatten();
    let is_ours = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
    let found: Vec<PathBuf> = entries.filter(|entry| is_ours(&entry.file_name())).map(|entry| entry.path()).collect();
    let count = found.len();
    let held = sweep(found);
    let _ = FOLDER.set(folder.to_owned());
    Ok((count - held.len(), held))
}

/// Removes the files that no process holds. Returns the others.
fn sweep(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.retain(|path| match File::open(path) {
        Ok(file) => file.try_lock().is_err() || std::fs::remove_file(path).is_err(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    });
    files
}

/// Removes these files once no process holds them. A process that was killed may have left a child that writes a snapshot: it shares the
/// locks of its parent, and ends later.
pub(crate) fn sweep_later(mut files: Vec<PathBuf>) {
    if files.is_empty() {
        return;
    }
    let sweep_on = move || {
        let mut wait = SWEEP_FIRST;
        while !files.is_empty() {
            std::thread::sleep(wait);
            wait = (2 * wait).min(SWEEP_LAST);
            files = sweep(std::mem::take(&mut files));
        }
    };
    // Without a thread the next start removes them.
    let _ = std::thread::Builder::new().name("ct-sweeper".to_owned()).spawn(sweep_on);
}

/// A file of pages. It is deleted when nothing refers to it any more.
#[derive(Debug)]
pub(crate) struct PageFile {
    pub(crate) id: FileId,
    pub(crate) name: String,
    path: PathBuf,
    file: File,
}

/// Memory for a page. `Box::new([0; PAGE_BYTES])` may be compiled to a copy from the stack, which took readers longer than the page itself.
fn zeroed() -> Box<[u8; PAGE_BYTES]> {
    let bytes: Result<Box<[u8; PAGE_BYTES]>, _> = vec![0; PAGE_BYTES].into_boxed_slice().try_into();
    bytes.unwrap_or_else(|_| unreachable!("it has this many bytes"))
}

impl PageFile {
    /// Reads and verifies a page.
    pub(crate) fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        let mut bytes = zeroed();
        let read = self.file.read_exact_at(&mut bytes[..], page.offset());
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => PageFault::Missing,
            _ => PageFault::Unread(error.to_string()),
        })?;
        Page::open(page, bytes)
    }

    /// Deletes the file by its name. Who has it open can go on reading.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
        self.remove();
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Draft {
    file: PageFile,
    /// Bytes of the file before those of the buffer.
    written: u64,
    buffer: Vec<u8>,
}

impl Draft {
    /// A name for a file that does not exist yet. Main thread only.
    pub(crate) fn new_id() -> FileId {
        FileId(random())
    }

    /// Begins a file.
    pub(crate) fn create(id: FileId) -> Result<Draft, String> {
        let name = format!("{PREFIX}{:016x}{SUFFIX}", id.0);
        let path = FOLDER.get().ok_or("no folder for cold tables")?.join(&name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        let moved = fcntl_dupfd_cloexec(&file, LOWEST.load(Relaxed));
        let file =
            File::from(moved.inspect_err(|_| drop(std::fs::remove_file(&path))).map_err(|error| failed(error.into()))?);
        // Only a process that starts in this folder may hold it, and then deletes it: the file stays usable without its name.
        let _ = file.try_lock();
        OPEN.fetch_add(1, Relaxed);
        let file = PageFile { id, name, path: path.clone(), file };
        Ok(Draft { file, written: 0, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Appends a page.
    pub(crate) fn append(&mut self, page: &[u8; PAGE_BYTES]) -> Result<(), String> {
        self.buffer.extend_from_slice(page);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Reads and verifies a page that was appended.
    fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        let Some(at) = page.offset().checked_sub(self.written) else { return self.file.read(page) };
        let bytes = self.buffer.get(at as usize..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or_else(|| PageFault::Unread("the page is not written yet".to_owned()))?;
        Page::open(page, Box::new(*bytes))
    }

    /// Ends the file. `sync`: whether it has to be on the disk, which takes its time, and shows errors that writing does not.
    pub(crate) fn finish(mut self, sync: bool) -> Result<PageFile, String> {
        self.flush()?;
        if sync {
            self.file.file.sync_data().map_err(|error| format!("{}: {error}", self.file.path.display()))?;
        }
        Ok(self.file)
    }

    fn flush(&mut self) -> Result<(), String> {
        let written = self.file.file.write_all(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        written.map_err(|error| format!("{}: {error}", self.file.path.display()))
    }
}

/// The open files of one set, by identity.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    files: HashMap<FileId, Arc<PageFile>>,
    /// Files that a restore is writing.
    drafts: HashMap<FileId, Draft>,
}

impl FileTable {
    pub(crate) fn insert(&mut self, file: PageFile) {
        self.files.insert(file.id, Arc::new(file));
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<Arc<PageFile>> {
        self.files.remove(&id)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&Arc<PageFile>> {
        self.files.get(&id)
    }

    /// All of them, those that are being written included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PageFile> {
        self.files.values().map(|file| &**file).chain(self.drafts.values().map(|draft| &draft.file))
    }

    /// Reads and verifies a page, in place; also of a file that is being written.
    pub(crate) fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        match (self.files.get(&page.file), self.drafts.get(&page.file)) {
            (Some(file), _) => file.read(page),
            (None, Some(draft)) => draft.read(page),
            (None, None) => Err(PageFault::Unread("the file is not open".to_owned())),
        }
    }
}

/// The files that a restore makes.
impl PageFiles for FileTable {
    fn create(&mut self) -> Result<(FileId, String), String> {
        let draft = Draft::create(Draft::new_id())?;
        let (id, name) = (draft.file.id, draft.file.name.clone());
        self.drafts.insert(id, draft);
        Ok((id, name))
    }

    fn append(&mut self, file: FileId, page: &[u8; PAGE_BYTES]) -> Result<(), String> {
        self.drafts.get_mut(&file).ok_or("the file is not being written")?.append(page)
    }

    fn finish(&mut self, file: FileId) -> Result<(), String> {
        let draft = self.drafts.remove(&file).ok_or("the file is not being written")?;
        self.insert(draft.finish(false)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_compact::{PageWriter, Record};

    #[test]
    fn w3_files_are_removed_once_no_process_holds_them() {
        let folder = std::env::temp_dir().join(format!("tallystone-sweep-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [held, free] = ["tallystone-1.cold", "tallystone-2.cold"].map(|name| folder.join(name));
        let file = File::create(&held).unwrap();
        file.try_lock().unwrap();
        File::create(&free).unwrap();
        assert_eq!(sweep(vec![held.clone(), free.clone()]), std::slice::from_ref(&held));
        assert!(held.exists() && !free.exists());
        drop(file);
        assert_eq!(sweep(vec![held.clone(), free]), Vec::<PathBuf>::new(), "one is gone already");
        std::fs::remove_dir(&folder).expect("the file was removed");
    }

    #[test]
    fn w4_pages_of_a_file_that_is_being_written_can_be_read() {
        let folder = std::env::temp_dir().join(format!("tallystone-files-{}", std::process::id()));
        open_folder(&folder).unwrap();
        let id = FileId(7);
        let mut files = FileTable::default();
        files.drafts.insert(id, Draft::create(id).unwrap());
        let mut writer = PageWriter::new(id);
        for number in 0..200_000_i64 {
            let record = Record::new(vec![number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed())]);
            writer.push(number as u64, &record, &mut |page| files.append(id, page)).unwrap();
        }
        let index = writer.finish(&mut |page| files.append(id, page)).unwrap();
        let first = |files: &FileTable, page| files.read(PageRef { file: id, page }).unwrap().records().unwrap()[0].0;
        let expected: Vec<u64> = (0..index.pages()).map(|page| index.range(page).unwrap().0).collect();
        assert!(
            expected.len() * PAGE_BYTES > 2 * BUFFER_BYTES
                && !(expected.len() * PAGE_BYTES).is_multiple_of(BUFFER_BYTES)
        );
        // Most of them are in the file, and the last ones in the buffer.
        let pages = || 0..index.pages();
        assert_eq!(pages().map(|page| first(&files, page)).collect::<Vec<_>>(), expected);
        assert!(files.read(PageRef { file: id, page: index.pages() }).is_err());
        assert_eq!(files.iter().count(), 1);
        files.finish(id).unwrap();
        assert_eq!(pages().map(|page| first(&files, page)).collect::<Vec<_>>(), expected);
        drop(files);
        std::fs::remove_dir(&folder).expect("the file was removed");
    }
}
