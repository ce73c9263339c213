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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use std::cell::RefCell;
    use std::ffi::{CStr, c_char};
    use std::ptr::null_mut;
    use tallystone_compact::{Change, CounterSet, Fetched, Field, Mode, Options, Order, Schema};

    /// An engine that does nothing but defragment.
    #[derive(Default)]
    struct Engine {
        /// It gives the value a cursor, and stops after so many blocks.
        stops_after: Option<u64>,
        cursor: c_ulong,
        requests: u64,
    }

    thread_local! {
        static ENGINE: RefCell<Engine> = RefCell::default();
    }

    unsafe extern "C" {
        fn malloc(bytes: usize) -> *mut c_void;
        fn free(memory: *mut c_void);
        fn malloc_usable_size(memory: *mut c_void) -> usize;
    }

    /// Moves two of three blocks. In tests, blocks are those of the C library.
    unsafe extern "C" fn defrag_alloc(_: *mut raw::DefragCtx, old: *mut c_void) -> *mut c_void {
        let requests = ENGINE.with_borrow_mut(|engine| {
            engine.requests += 1;
            engine.requests
        });
        if requests.is_multiple_of(3) {
            return null_mut();
        }
        // SAFETY: `old` is a block of the allocator, which is not used again.
        unsafe {
            let bytes = malloc_usable_size(old);
            let new = malloc(bytes);
            new.copy_from_nonoverlapping(old, bytes);
            old.write_bytes(0xa5, bytes);
            free(old);
            new
        }
    }

    unsafe extern "C" fn defrag_should_stop(_: *mut raw::DefragCtx) -> c_int {
        ENGINE.with_borrow(|engine| c_int::from(engine.stops_after.is_some_and(|after| engine.requests >= after)))
    }

    unsafe extern "C" fn defrag_cursor_set(_: *mut raw::DefragCtx, cursor: c_ulong) -> c_int {
        ENGINE.with_borrow_mut(|engine| engine.cursor = cursor);
        raw::OK
    }

    unsafe extern "C" fn defrag_cursor_get(_: *mut raw::DefragCtx, cursor: *mut c_ulong) -> c_int {
        let Some(known) = ENGINE.with_borrow(|engine| engine.stops_after.map(|_| engine.cursor)) else {
            return raw::ERR;
        };
        // SAFETY: the caller's place.
        unsafe { *cursor = known };
        raw::OK
    }

    unsafe extern "C" fn unexpected() {
        std::process::abort();
    }

    unsafe extern "C" fn get_api(name: *const c_char, found: *mut *mut c_void) -> c_int {
        // SAFETY: a C string.
        let function = match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok("RedisModule_DefragAlloc") => defrag_alloc as *mut c_void,
            Ok("RedisModule_DefragShouldStop") => defrag_should_stop as *mut c_void,
            Ok("RedisModule_DefragCursorSet") => defrag_cursor_set as *mut c_void,
            Ok("RedisModule_DefragCursorGet") => defrag_cursor_get as *mut c_void,
            _ => unexpected as *mut c_void,
        };
        // SAFETY: the caller's place.
        unsafe { *found = function };
        raw::OK
    }

    fn resolve() {
        let mut first_word: raw::GetApi = get_api;
        // The functions are resolved once for all tests of this process. No other one calls them.
        // SAFETY: as the engine's context, its first word is the function that finds the others.
        assert!(unsafe { raw::resolve((&raw mut first_word).cast()) }.is_ok());
    }

    fn set(order: Order) -> CounterSet {
        let field = |name: &[u8]| Field::parse(name, b"24").unwrap();
        let options = Options { order, table_slots: 64, ..Options::default() };
        CounterSet::new(Schema::new(vec![field(b"a"), field(b"b")]).unwrap(), options, 7).unwrap()
    }

    fn fill(set: &mut CounterSet, ids: std::ops::Range<u64>) {
        for id in ids {
            set.increment(Mode::Decide, id, &[(0, 1 + id as i64)], &Fetched::none(), &mut Vec::new()).unwrap();
        }
    }

    /// The addresses of all segments.
    fn places(set: &mut CounterSet) -> Vec<usize> {
        let mut places = Vec::new();
        let end = set.segments(0, |segment| {
            places.push(segment.as_ptr().addr());
            true
        });
        assert_eq!(end, 0);
        places
    }

    /// Defragments a value as an engine does, call by call, with commands between. Returns the calls.
    fn defragment(value: &mut *mut c_void, stops_after: Option<u64>, mut between: impl FnMut(&mut CounterSet)) -> u64 {
        ENGINE.replace(Engine { stops_after, ..Engine::default() });
        let mut calls = 1;
        // SAFETY: the fake engine needs neither a context nor a key.
        while unsafe { defrag(null_mut(), null_mut(), value) } == MORE {
            calls += 1;
            ENGINE.with_borrow_mut(|engine| engine.requests = 0);
            // SAFETY: a value of ours.
            between(unsafe { datatype::from_raw(*value) }.shared.lock().unwrap().set());
        }
        calls
    }

    #[test]
    fn w1_the_engine_moves_a_value_and_its_segments_in_pieces() {
        resolve();
        for order in [Order::Rising, Order::Random] {
            for stops_after in [None, Some(1), Some(7)] {
                let mut set = set(order);
                fill(&mut set, 0..4_000);
                let tables = places(&mut set).len() as u64;
                assert!(tables > 60, "{tables}");
                // Half of the tables are being converted.
                set.alter(Change::Add(Field::parse(b"c", b"30").unwrap())).unwrap();
                for _ in 0..4 {
                    set.step(0);
                }
                let mut value = datatype::into_raw(Value::new(set));
                let (begin, mut next) = (value, 4_000);
                // SAFETY: `into_raw` has made it.
                let before = places(unsafe { datatype::from_raw(value) }.shared.lock().unwrap().set());
                let calls = defragment(&mut value, stops_after, |set| {
                    // Tables come and split while the engine waits.
                    fill(set, next..next + 20);
                    next += 20;
                    set.step(0);
                });
                assert_ne!(value, begin, "the value itself");
                match stops_after {
                    None => assert_eq!(calls, 1),
                    // Tables that split meanwhile are not visited, nor are their halves.
                    Some(after) => assert!(calls > tables / after / 2 && calls < 2 * tables, "{calls} of {tables}"),
                }
                // SAFETY: `into_raw` has made it, and nothing else has it.
                let value = unsafe { Box::from_raw(value.cast::<Value>()) };
                let mut held = value.shared.lock().unwrap();
                if stops_after.is_none() {
                    let after = places(held.set());
                    // An address that was freed may be that of a later segment.
                    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
                    assert!(moved >= before.len() / 2 && moved < before.len(), "{moved} of {}", before.len());
                }
                let mut found = Vec::new();
                for id in 0..next {
                    found.clear();
                    held.set().read(id, &Fetched::none(), &mut found).unwrap();
                    assert_eq!(found, [1 + id as i64, 0, 0], "id {id}");
                }
            }
        }
    }
}
