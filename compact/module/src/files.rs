//! The files of cold tables. They are swap space: what they hold is in the engine's snapshot and log too, so they are deleted when
//! they are replaced, when the engine stops, and when it starts.
//!
//! Each file is locked while its process lives, so that processes may share a folder.

use crate::context::random;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tallystone_compact::{FileId, PAGE_BYTES, Page, PageFault, PageFiles, PageRef};

const PREFIX: &str = "tallystone-";
const SUFFIX: &str = ".cold";
/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 64 * PAGE_BYTES;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Takes a folder for the files, and removes those whose process is gone. Returns how many.
pub(crate) fn open_folder(folder: &Path) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("the folder '{}' for cold tables: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut removed = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if is_ours
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
            && std::fs::remove_file(entry.path()).is_ok()
        {
            removed += 1;
        }
    }
    let _ = FOLDER.set(folder.to_owned());
    Ok(removed)
}

/// A file of pages. It is deleted when nothing refers to it any more.
#[derive(Debug)]
pub(crate) struct PageFile {
    pub(crate) id: FileId,
    pub(crate) name: String,
    path: PathBuf,
    file: File,
}

impl PageFile {
    /// Reads and verifies a page.
    pub(crate) fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        let read = self.file.read_exact_at(&mut bytes[..], page.offset());
        read.map_err(|error| PageFault::Unread(error.to_string()))?;
        Page::open(page, bytes)
    }

    /// Deletes the file by its name. Who has it open can go on reading.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A file that is being written.
pub(crate) struct Draft {
    file: PageFile,
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
        // Only a process that starts in this folder may hold it, and then deletes it: the file stays usable without its name.
        let _ = file.try_lock();
        let file = PageFile { id, name, path: path.clone(), file };
        Ok(Draft { file, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Appends a page.
    pub(crate) fn append(&mut self, page: &[u8; PAGE_BYTES]) -> Result<(), String> {
        self.buffer.extend_from_slice(page);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
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
        self.buffer.clear();
        written.map_err(|error| format!("{}: {error}", self.file.path.display()))
    }
}

/// The open files of one set, by identity.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    files: HashMap<FileId, Arc<PageFile>>,
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<PageFile>> {
        self.files.values()
    }

    /// Reads and verifies a page, in place.
    pub(crate) fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        match self.files.get(&page.file) {
            Some(file) => file.read(page),
            None => Err(PageFault::Unread("the file is not open".to_owned())),
        }
    }
}

/// Writes the files that a restore makes, into the table of its set.
pub(crate) struct Restored<'a> {
    pub(crate) drafts: &'a mut HashMap<FileId, Draft>,
    pub(crate) files: &'a mut FileTable,
}

impl PageFiles for Restored<'_> {
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
        self.files.insert(draft.finish(false)?);
        Ok(())
    }
}
