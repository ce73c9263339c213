//! The section of `INFO`: totals over all sets. There may be a hundred thousand sets, so one call sums so many tables at most, and the
//! background goes on.

use crate::context::Context;
use crate::raw::{self, api};
use crate::{background, blocked, guard, readers, value};
use std::ffi::{CStr, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tallystone_compact::Totals;

/// Tables that one call visits before it leaves the rest to the background, and that a piece of background work visits. A set is visited
/// as a whole.
const TABLES: usize = 4_096;
/// What a set costs beside its tables, in tables.
const SET_COST: usize = 2;

/// Totals of the sets with the numbers before `next`.
#[derive(Clone, Copy, Default)]
struct Sums {
    next: u64,
    sets: u64,
    all: Totals,
}

/// What was summed. Only the main thread takes the lock.
struct Rounds {
    /// A round that the background goes on with.
    running: Option<Sums>,
    /// The last one over all sets.
    complete: Option<Sums>,
}

static ROUNDS: Mutex<Rounds> = Mutex::new(Rounds { running: None, complete: None });
/// Whether a round runs. Each piece of background work asks for it.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

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
        let Sums { sets, all, .. } = look(is_crash != 0);
        field(c"sets", value::count() as u64);
        field(c"sets_summed", sets);
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

/// The totals to show: those of now if one call can visit all tables, else those of the last complete round; without one, what the first
/// round has summed so far.
fn look(is_crash: bool) -> Sums {
    let mut now = Sums::default();
    let is_complete = now.go_on();
    // A thread that reports its crash may have been in the midst of a round.
    let Some(mut rounds) = ROUNDS.try_lock().ok().filter(|_| !is_crash) else { return now };
    if is_complete {
        (rounds.running, rounds.complete) = (None, Some(now));
    } else if rounds.running.is_none() {
        rounds.running = Some(now);
        background::begin();
    }
    IS_RUNNING.store(rounds.running.is_some(), Relaxed);
    rounds.complete.or(rounds.running).unwrap_or(now)
}

/// A piece of the round that runs. Returns whether there is more of it.
pub(crate) fn go_on() -> bool {
    if !IS_RUNNING.load(Relaxed) {
        return false;
    }
    let Ok(mut rounds) = ROUNDS.try_lock() else { return false };
    if rounds.running.as_mut().is_some_and(|running| running.go_on()) {
        rounds.complete = rounds.running.take();
    }
    IS_RUNNING.store(rounds.running.is_some(), Relaxed);
    rounds.running.is_some()
}

impl Sums {
    /// Adds some of the sets that follow. Returns whether there are no more.
    fn go_on(&mut self) -> bool {
        let mut visited = 0;
        while visited < TABLES {
            let Some((number, set)) = value::from(self.next) else { return true };
            self.next = number + 1;
            visited += SET_COST;
            // In the midst of a command this is a report of a crash, which does without the set.
            let Some(shared) = set else { continue };
            let Some(mut held) = shared.try_lock() else { continue };
            visited += held.set().table_count();
            self.sets += 1;
            self.all += held.set().totals();
        }
        false
    }
}
