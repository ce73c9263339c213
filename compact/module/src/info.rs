//! The section of `INFO`.

use crate::context::Context;
use crate::raw::{self, api};
use crate::sums::{self, Sums};
use crate::{background, blocked, files, guard, readers, value};
use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering::Relaxed;

/// Adds the section to `INFO`.
pub(crate) fn register(context: &Context<'_>) -> Result<(), String> {
    // SAFETY: the context is that of OnLoad, and the callback has the engine's signature.
    if unsafe { (api().register_info_func)(context.raw(), show) } == raw::OK {
        return Ok(());
    }
    Err("the section of INFO cannot be registered".to_owned())
}

unsafe extern "C" fn show(ctx: *mut raw::InfoCtx, is_crash: c_int) {
    guard::or((), || {
        // SAFETY: the engine's context, valid for this call. An empty name stands for that of the module.
        if unsafe { (api().info_add_section)(ctx, c"".as_ptr()) } != raw::OK {
            return;
        }
        // SAFETY: as above.
        let field = |name: &CStr, value: u64| unsafe { (api().info_add_field)(ctx, name.as_ptr(), value) };
        let (Sums { sets, all, .. }, begins) = sums::totals(is_crash != 0);
        if begins {
            background::begin();
        }
        field(c"sets", value::count() as u64);
        field(c"sets_summed", sets);
        field(c"ids", all.ids);
        field(c"overlay_ids", all.overlay_ids);
        field(c"memory_bytes", all.memory_bytes as u64);
        field(c"hot_tables", all.hot_tables as u64);
        field(c"cold_tables", all.cold_tables as u64);
        field(c"file_bytes", all.file_bytes);
        field(c"open_files", files::OPEN.load(Relaxed));
        field(c"aux_ids", all.aux);
        field(c"extend_ids", all.extend);
        field(c"damaged_ranges", all.damaged as u64);
        field(c"tokens", all.tokens as u64);
        field(c"cache_hits", all.cache_hits);
        field(c"cache_misses", all.cache_misses);
        field(c"cold_commands", blocked::WAITS.load(Relaxed));
        field(c"cold_pages_read", readers::PAGES_READ.load(Relaxed));
        field(c"cold_pages_held", blocked::PAGES_HELD.load(Relaxed) as u64);
    });
}
