//! The type of value `tstone-ct`, and its callbacks that are not about snapshots ([`rdb`]) or digests ([`digest`]).

mod defrag;
mod digest;
mod handle;
mod origin;
mod rdb;

pub(crate) use handle::{ENCODING, from_raw, into_raw, kind};

use crate::background;
use crate::context::{Context, Level, log};
use crate::guard;
use crate::raw::{self, TypeMethods, api};
use crate::value::Value;
use origin::Origin;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Nine characters: the engine makes a number of them.
const NAME: &CStr = c"tstone-ct";

/// Makes the type known.
pub(crate) fn register(context: &Context<'_>) -> Result<(), String> {
    let methods = TypeMethods {
        version: raw::TYPE_METHODS_VERSION,
        rdb_load: Some(rdb::load),
        rdb_save: Some(rdb::save),
        aof_rewrite: Some(rdb::rewrite),
        mem_usage: None,
        digest: Some(digest::digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: Some(defrag::defrag),
        mem_usage2: Some(memory_usage),
        free_effort2: Some(free_effort),
        // The engine calls it for RENAME and MOVE too, after which the value lives on.
        unlink2: None,
        copy2: Some(copy),
    };
    // SAFETY: the engine copies the table. Each callback has the signature of its member.
    let kind = unsafe { (api().create_data_type)(context.raw(), NAME.as_ptr(), ENCODING, &methods) };
    if kind.is_null() {
        return Err("the type 'tstone-ct' cannot be registered".to_owned());
    }
    handle::set_kind(kind);
    Ok(())
}

unsafe extern "C" fn free(value: *mut c_void) {
    guard::or((), || {
        // SAFETY: the engine gives the value back, and does not use it again.
        drop(unsafe { Box::from_raw(value.cast::<Value>()) });
    });
}

/// KiB, since the engine moves a value of up to 1,000 units (`active-defrag-max-scan-fields`) at once when it defragments, and a larger one
/// in pieces. It also frees a value of more than 64 units on its own thread, if configured so.
unsafe extern "C" fn free_effort(_context: *mut raw::KeyOptCtx, value: *const c_void) -> usize {
    // SAFETY: the engine's value, which it still holds.
    guard::or(1, || unsafe { bytes(value) } / 1024 + 1)
}

unsafe extern "C" fn memory_usage(_context: *mut raw::KeyOptCtx, value: *const c_void, _samples: usize) -> usize {
    // SAFETY: the engine's value, which it still holds.
    guard::or(0, || unsafe { bytes(value) })
}

/// # Safety
/// As of [`from_raw`].
unsafe fn bytes(value: *const c_void) -> usize {
    // SAFETY: the caller's promise.
    let value = unsafe { from_raw(value) };
    let set = value.shared.try_lock().map_or(0, |mut held| held.set().memory_bytes());
    size_of::<Value>() + set
}

unsafe extern "C" fn copy(_context: *mut raw::KeyOptCtx, value: *const c_void) -> *mut c_void {
    let origin = Origin::now();
    let copy = guard::or(null_mut(), || {
        // SAFETY: the engine's value, which it still holds.
        let value = unsafe { from_raw(value) };
        match rdb::copy_of(value, origin) {
            Ok(copy) => {
                background::wake(&copy.shared);
                into_raw(copy)
            }
            Err(reason) => {
                log(Level::Warning, &format!("a copy failed: {reason}"));
                null_mut()
            }
        }
    });
    // No client copies while the engine loads: this command is in the log.
    if copy.is_null() && matches!(origin, Origin::Primary | Origin::Loading) {
        Origin::end_without_key("COPY");
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_compact::{CounterSet, Fetched, Field, Mode, Options, Schema};

    /// `active-defrag-max-scan-fields` by default.
    const AT_ONCE: usize = 1_000;

    #[test]
    fn w1_a_set_of_more_than_a_megabyte_is_defragmented_in_pieces() {
        for (ids, is_large) in [(1_000, false), (100_000, true)] {
            let schema = Schema::new(vec![Field::parse(b"a", b"24").unwrap()]).unwrap();
            let mut set = CounterSet::new(schema, Options { table_slots: 256, ..Options::default() }, 7).unwrap();
            for id in 0..ids {
                set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
            }
            let megabytes = set.memory_bytes() >> 20;
            assert_eq!(megabytes >= 1, is_large, "{megabytes}");
            let value = Value::new(set);
            // SAFETY: a value of ours; the context is not used.
            let effort = unsafe { free_effort(std::ptr::null_mut(), (&raw const value).cast()) };
            assert_eq!(effort > AT_ONCE, is_large, "{effort}");
        }
    }
}
