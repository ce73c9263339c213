//! Files in memory, for tests.

use std::collections::HashMap;
use tallystone_compact::*;

/// Files in memory, in the place of a host's disk.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) files: HashMap<FileId, Vec<[u8; PAGE_BYTES]>>,
    next: u64,
    /// Pages that can still be written; `None`: any number.
    pub(crate) room: Option<usize>,
}

impl Disk {
    pub(crate) fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        let bytes = self.files.get(&page.file).and_then(|file| file.get(page.page as usize));
        let bytes = bytes.ok_or(PageFault::Missing)?;
        Page::open(page, Box::new(*bytes))
    }

    pub(crate) fn fetch(&self, pages: Vec<PageRef>) -> Fetched {
        pages.into_iter().map(|page| (page, self.read(page))).collect()
    }

    /// Reads pages and searches them, as the readers of a host do.
    pub(crate) fn search(&self, needs: &[Need]) -> Fetched {
        let mut fetched = Fetched::none();
        for needs in needs.chunk_by(|one, next| one.page == next.page) {
            fetched.append(Fetched::of(needs[0].page, needs, self.read(needs[0].page)));
        }
        fetched
    }
}

impl PageFiles for Disk {
    fn create(&mut self) -> Result<(FileId, String), String> {
        self.next += 1;
        self.files.insert(FileId(self.next * 77), Vec::new());
        Ok((FileId(self.next * 77), format!("file {}", self.next)))
    }

    fn append(&mut self, file: FileId, page: &[u8; PAGE_BYTES]) -> Result<(), String> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or("the disk is full")?;
        }
        self.files.get_mut(&file).ok_or("no such file")?.push(*page);
        Ok(())
    }

    fn finish(&mut self, _file: FileId) -> Result<(), String> {
        Ok(())
    }
}
