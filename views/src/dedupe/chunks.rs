//! Memory of a table in chunks of equal size. The table grows by chunks, so nothing is left that is too small for what comes next; and
//! it comes from the operating system, not from the allocator, so all of it is given back when the table is dropped.

use memmap2::MmapMut;
use std::alloc::{Layout, handle_alloc_error};

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = 1_024;
/// So many chunks are mapped together. Those that were never used take no memory.
const EXTENT_CHUNKS: usize = 8_192;
/// A table with so many extents has large pages in the next ones: the part of the last one that is not used is small then.
const LARGE_FROM: usize = 3;
/// The number of a chunk, which its table keeps.
const NUMBER_BYTES: usize = size_of::<u32>();

/// A chunk.
pub(super) type Chunk = [u8; CHUNK_BYTES];

/// The chunks of a table, by their numbers.
#[derive(Default)]
pub(super) struct Chunks {
    extents: Vec<MmapMut>,
    /// Those from this number on were never used.
    used: usize,
    free: Vec<u32>,
}

impl Chunks {
    /// Adds a chunk with these bytes, and returns its number.
    #[inline]
    pub(super) fn add(&mut self, chunk: &Chunk) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            if self.used == self.extents.len() * EXTENT_CHUNKS {
                let extent = mapped(EXTENT_CHUNKS * CHUNK_BYTES);
                if self.extents.len() >= LARGE_FROM {
                    use_large_pages(&extent);
                }
                self.extents.push(extent);
            }
            self.used += 1;
            u32::try_from(self.used - 1).expect("a table has less than 4 TiB")
        });
        *self.get_mut(number) = *chunk;
        number
    }

    /// Removes a chunk, and returns its bytes.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> Chunk {
        self.free.push(number);
        *self.get(number)
    }

    /// The chunk of a number.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Chunk {
        let number = number as usize;
        &self.extents[number / EXTENT_CHUNKS].as_chunks().0[number % EXTENT_CHUNKS]
    }

    /// The chunk of a number.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Chunk {
        let number = number as usize;
        &mut self.extents[number / EXTENT_CHUNKS].as_chunks_mut().0[number % EXTENT_CHUNKS]
    }

    /// The memory of all chunks and of their numbers, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.used * (CHUNK_BYTES + NUMBER_BYTES)
    }
}

/// So many bytes from the operating system, at least one: zeros, which take memory from the first write on. As with all memory, the
/// program ends if there is none.
pub(super) fn mapped(bytes: usize) -> MmapMut {
    MmapMut::map_anon(bytes)
        .unwrap_or_else(|_| handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())))
}

/// Fewer reads wait for the address of a page then. Where there are no large pages, it does nothing.
pub(super) fn use_large_pages(memory: &MmapMut) {
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}
