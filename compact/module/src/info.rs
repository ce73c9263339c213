//! The section of `INFO`: totals over all sets.

use crate::context::Context;
use crate::raw::{self, api};
use crate::{blocked, guard, readers, value};
use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering::Relaxed;
use tallystone_compact::Totals;

/// Adds the section to `INFO`.
pub(crate) fn register(context: &Context<'_>) -> Result<(), String> {
    // SAFETY: the context is that of OnLoad, and the callback has the engine's signature.
    if unsafe { (api().register_info_func)(context.raw(), show) } == raw::OK {
        return Ok(());
    }
    Err("the section of INFO cannot be registered".to_owned())
}

unsafe extern "C" fn show(ctx: *mut raw::InfoCtx, _is_crash: c_int) {
    guard::or((), || {
        // SAFETY: the engine's context, valid for this call. An empty name stands for that of the module.
        if unsafe { (api().info_add_section)(ctx, c"".as_ptr()) } != raw::OK {
            return;
        }
        // SAFETY: as above.
        let field = |name: &CStr, value: u64| unsafe { (api().info_add_field)(ctx, name.as_ptr(), value) };
        let (count, all) = sum();
        field(c"sets", count);
        field(c"ids", all.ids);
        field(c"memory_bytes", all.memory_bytes as u64);
        field(c"hot_tables", all.hot_tables as u64);
        field(c"cold_tables", all.cold_tables as u64);
        field(c"file_bytes", all.file_bytes);
        field(c"aux_ids", all.aux);
        field(c"extend_ids", all.extend);
        field(c"damaged_ranges", all.damaged as u64);
        field(c"tokens", all.tokens as u64);
        field(c"cache_hits", all.cache_hits);
        field(c"cache_misses", all.cache_misses);
        field(c"cold_commands", blocked::WAITS.load(Relaxed));
        field(c"cold_pages_read", readers::PAGES_READ.load(Relaxed));
    });
}

fn sum() -> (u64, Totals) {
    let (mut count, mut all) = (0, Totals::default());
    for shared in value::all() {
        // In the midst of a command this is a report of a crash, which does without the set.
        let Some(mut held) = shared.try_lock() else { continue };
        let totals = held.set().totals();
        count += 1;
        all.ids += totals.ids;
        all.memory_bytes += totals.memory_bytes;
        all.hot_tables += totals.hot_tables;
        all.cold_tables += totals.cold_tables;
        all.file_bytes += totals.file_bytes;
        all.aux += totals.aux;
        all.extend += totals.extend;
        all.damaged += totals.damaged;
        all.tokens += totals.tokens;
        all.cache_hits += totals.cache_hits;
        all.cache_misses += totals.cache_misses;
    }
    (count, all)
}
