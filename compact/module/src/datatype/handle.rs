//! The type as the engine knows it, and the pointers to its values that the engine holds.

use crate::raw;
use crate::value::Value;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The version of the encoding: a sequence of pieces.
pub(crate) const ENCODING: c_int = 1;

struct Registered(*mut raw::ModuleType);

// SAFETY: the engine's type is never freed, and is only passed back to the engine.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

static TYPE: OnceLock<Registered> = OnceLock::new();

/// Remembers the type that the engine has made.
pub(super) fn set_kind(kind: *mut raw::ModuleType) {
    let _ = TYPE.set(Registered(kind));
}

/// The type, as the engine knows it.
#[inline]
pub(crate) fn kind() -> *mut raw::ModuleType {
    TYPE.get().map_or(null_mut(), |registered| registered.0)
}

/// Gives a value to the engine.
pub(crate) fn into_raw(value: Value) -> *mut c_void {
    Box::into_raw(Box::new(value)).cast()
}

/// The value behind the engine's pointer.
///
/// # Safety
/// The pointer is that of a value of this type, which is not freed while the result is used.
#[inline]
pub(crate) unsafe fn from_raw<'a>(value: *const c_void) -> &'a Value {
    // SAFETY: the caller's promise; `into_raw` has made the pointer.
    unsafe { &*value.cast::<Value>() }
}
