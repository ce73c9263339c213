//! The allocator of this crate is the engine's, so that `used_memory`, `maxmemory` and `MEMORY USAGE` count what counter sets use.

use crate::raw::{Api, api_if_resolved};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What the engine's allocator aligns to at least, in each of its builds.
const ENGINE_ALIGN: usize = 8;
/// Memory for what is allocated before the engine's functions are known: nothing today, and a library's start may change.
const EARLY_BYTES: usize = 64 << 10;

/// Allocates with the engine's functions.
pub(crate) struct EngineAllocator;

#[repr(align(4096))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: `allocate_early` gives each part of it away once.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

fn allocate_early(layout: Layout) -> *mut u8 {
    let bytes = layout.size() + layout.align();
    let begin = EARLY_USED.fetch_add(bytes, Relaxed);
    if begin + bytes > EARLY_BYTES {
        return null_mut();
    }
    let base: *mut u8 = EARLY.0.get().cast();
    let aligned = (base.addr() + begin).next_multiple_of(layout.align());
    base.with_addr(aligned)
}

fn is_early(memory: *mut u8) -> bool {
    let base = EARLY.0.get().addr();
    (base..base + EARLY_BYTES).contains(&memory.addr())
}

/// Allocates more than requested, aligns within it, and keeps the engine's address right before the result.
///
/// # Safety
/// As of [`GlobalAlloc::alloc`].
unsafe fn allocate_aligned(api: &Api, layout: Layout) -> *mut u8 {
    let room = layout.align().max(size_of::<*mut c_void>());
    // SAFETY: any size may be requested.
    let memory = unsafe { (api.alloc)(layout.size() + room) };
    if memory.is_null() {
        return null_mut();
    }
    // At least one word lies before the next multiple: the engine's addresses are multiples of 8 themselves.
    let aligned = (memory.addr() + size_of::<*mut c_void>()).next_multiple_of(layout.align());
    let aligned = memory.with_addr(aligned).cast::<u8>();
    // SAFETY: the word before `aligned` is within the block.
    unsafe { aligned.cast::<*mut c_void>().sub(1).write(memory) };
    aligned
}

// SAFETY: each block comes from the engine's allocator or, before that is known, from a separate part of `EARLY`; and returns to where
// it came from: `EARLY` is recognized by its addresses, aligned blocks by their layout.
unsafe impl GlobalAlloc for EngineAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match api_if_resolved() {
            // SAFETY: any size may be requested.
            Some(api) if layout.align() <= ENGINE_ALIGN => unsafe { (api.alloc)(layout.size()).cast() },
            // SAFETY: the caller's promise.
            Some(api) => unsafe { allocate_aligned(api, layout) },
            None => allocate_early(layout),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match api_if_resolved() {
            // SAFETY: any size may be requested. Large blocks come zeroed from the system, untouched.
            Some(api) if layout.align() <= ENGINE_ALIGN => unsafe { (api.calloc)(1, layout.size()).cast() },
            _ => {
                // SAFETY: the caller's promise.
                let memory = unsafe { self.alloc(layout) };
                if !memory.is_null() {
                    // SAFETY: the block has this size.
                    unsafe { memory.write_bytes(0, layout.size()) };
                }
                memory
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(api) = api_if_resolved() else { return };
        if is_early(memory) {
            return;
        }
        if layout.align() <= ENGINE_ALIGN {
            // SAFETY: the block is the engine's.
            unsafe { (api.free)(memory.cast()) };
        } else {
            // SAFETY: `allocate_aligned` has left the engine's address here.
            unsafe { (api.free)(memory.cast::<*mut c_void>().sub(1).read()) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(api) = api_if_resolved()
            && layout.align() <= ENGINE_ALIGN
            && !is_early(memory)
        {
            // SAFETY: the block is the engine's.
            return unsafe { (api.realloc)(memory.cast(), size).cast() };
        }
        // SAFETY: the caller promises that the size is valid for the alignment; the blocks differ, and both have the smaller size.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_memory_before_the_engine_is_aligned_and_known_again() {
        let (one, two) = (Layout::new::<u8>(), Layout::from_size_align(100, 64).unwrap());
        let (first, second) = (allocate_early(one), allocate_early(two));
        assert!(is_early(first) && is_early(second) && !is_early(Box::into_raw(Box::new(0_u8))));
        assert_eq!(second.addr() % 64, 0);
        assert!(second.addr() > first.addr());
        assert!(allocate_early(Layout::from_size_align(EARLY_BYTES, 1).unwrap()).is_null());
    }
}
