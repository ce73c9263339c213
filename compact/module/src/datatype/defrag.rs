//! The engine's active defragmentation: it moves the value, and segments of slots that it requests. A cursor lets it stop between
//! segments.

use crate::raw::{self, api};
use crate::{datatype, guard};
use std::ffi::{c_int, c_ulong, c_void};

/// Not all was visited: call again.
const MORE: c_int = 1;
const DONE: c_int = 0;

pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::DefragCtx,
    _key: *mut raw::Str,
    value: *mut *mut c_void,
) -> c_int {
    guard::or(DONE, || {
        let mut cursor: c_ulong = 0;
        // SAFETY: the engine's context, valid for this call. Without a cursor, the place stays 0.
        unsafe { (api().defrag_cursor_get)(ctx, &mut cursor) };
        if cursor == 0 {
            // SAFETY: the value is one block of the engine's allocator (its alignment is a word's), and nothing refers to its place
            // but the engine's pointer, which is replaced here.
            unsafe {
                let moved = (api().defrag_alloc)(ctx, *value);
                if !moved.is_null() {
                    *value = moved;
                }
            }
        }
        // SAFETY: the engine's value, which it holds for this call.
        let shared = unsafe { &datatype::from_raw(*value).shared };
        let Some(mut held) = shared.lock() else { return DONE };
        // A call that may not stop is one without a cursor: it is of a small value.
        let next = held.set().segments(cursor, |segment| {
            move_segment(ctx, segment);
            // SAFETY: as above.
            unsafe { (api().defrag_should_stop)(ctx) == 0 }
        });
        // SAFETY: as above.
        if next != 0 && unsafe { (api().defrag_cursor_set)(ctx, next) } == raw::OK { MORE } else { DONE }
    })
}

fn move_segment(ctx: *mut raw::DefragCtx, segment: &mut Box<[u8]>) {
    if segment.is_empty() {
        return;
    }
    let bytes = std::mem::take(segment);
    let len = bytes.len();
    let old: *mut u8 = Box::into_raw(bytes).cast();
    // SAFETY: a slice of bytes has no alignment, so `memory` has it from the engine as it is. The engine copies and frees it, or returns
    // null and leaves it. Either way one block of `len` bytes is ours afterwards.
    *segment = unsafe {
        let moved: *mut u8 = (api().defrag_alloc)(ctx, old.cast()).cast();
        let memory = if moved.is_null() { old } else { moved };
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, len))
    };
}
