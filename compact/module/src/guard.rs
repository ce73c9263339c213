//! Panics: none may unwind into the engine. Each is logged where it happens, and the callback answers with a default.

use crate::context::{Level, log};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback. After a panic in it, returns `failed`.
#[inline]
pub(crate) fn or<T>(failed: T, callback: impl FnOnce() -> T) -> T {
    // A set that was being changed has a poisoned lock, and is refused from then on; nothing else outlives a callback half-done.
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(failed)
}

/// Logs each panic of any thread of this module.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::force_capture();
        log(Level::Warning, &format!("a bug: {panic}\n{trace}"));
    }));
}
