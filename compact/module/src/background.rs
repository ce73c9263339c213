//! Background work on the engine's thread, in bounded pieces from a timer. The timer runs only while there is work.

use crate::context::{Context, Level, log, now_ms};
use crate::files::Draft;
use crate::raw::{self, api};
use crate::value::{self, Held, Shared};
use crate::writer::{self, Outcome, Task, Written};
use crate::{guard, reaper, sums};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tallystone_compact::Job;

/// Time between pieces of work, while there is some.
const PERIOD_MS: i64 = 10;
/// The time until a later pass of the engine's loop. A timer of 0 ms would run in this one.
const LATER_PASS_MS: i64 = 1;
/// Time between checks of what only time makes due: tokens that expire, a disk that was full.
const IDLE_PERIOD_MS: i64 = 1_000;
/// How long one piece may take.
const BUDGET: Duration = Duration::from_micros(500);
/// After a failed job, the time before the next one.
const RETRY_MS: u64 = 5_000;
/// While the engine loads its log, timers do not run: so many writes between pieces of work.
const LOADING_WRITES: u32 = 256;

type Queue = VecDeque<Weak<Shared>>;

/// Sets to visit. There may be a hundred thousand, so they are taken one by one.
struct Queues {
    /// Sets with work.
    awake: Queue,
    /// Sets with work that time alone makes due.
    waiting: Queue,
    /// Sets that have waited.
    due: Queue,
}

/// Only the main thread takes the lock.
static QUEUES: Mutex<Queues> =
    Mutex::new(Queues { awake: VecDeque::new(), waiting: VecDeque::new(), due: VecDeque::new() });
/// A context for timers that no command sets.
static TIMERS: OnceLock<Detached> = OnceLock::new();
static IS_LOADING: AtomicBool = AtomicBool::new(false);
static LOADED_WRITES: AtomicU32 = AtomicU32::new(0);
/// Whether outcomes of jobs wait for commands.
static ARE_POSTPONED: AtomicBool = AtomicBool::new(false);
/// Whether a timer is set, for the next piece of work and for the next look.
static ARMED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

struct Detached(*mut raw::Ctx);

// SAFETY: the context is never freed, and used by the main thread only.
unsafe impl Send for Detached {}
// SAFETY: as above.
unsafe impl Sync for Detached {}

fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queues {
    fn len(&self) -> usize {
        self.awake.len() + self.due.len()
    }

    /// The next set to visit, which is awake then.
    fn next(&mut self) -> Option<Arc<Shared>> {
        if let Some(shared) = self.awake.pop_front() {
            return shared.upgrade();
        }
        let shared = self.due.pop_front()?.upgrade()?;
        shared.is_waiting.store(false, Relaxed);
        (!shared.is_awake.swap(true, Relaxed)).then_some(shared)
    }

    /// Puts a set back that was visited.
    fn put_back(&mut self, shared: &Arc<Shared>, has_more: bool, is_waiting: bool) {
        shared.is_awake.store(has_more, Relaxed);
        if has_more {
            self.awake.push_back(Arc::downgrade(shared));
        } else if is_waiting && !shared.is_waiting.swap(true, Relaxed) {
            self.waiting.push_back(Arc::downgrade(shared));
        }
    }
}

/// Follows the engine: when it loads, and when it stops.
pub(crate) fn register(context: &Context<'_>) -> Result<(), String> {
    let subscribe = |id: u64, callback: raw::EventFunc| {
        // SAFETY: the context is that of OnLoad, and the callback has the engine's signature.
        unsafe { (api().subscribe_to_server_event)(context.raw(), raw::Event { id, version: 1 }, callback) }
    };
    // SAFETY: the context is that of OnLoad.
    let _ = TIMERS.set(Detached(unsafe { (api().get_detached_context)(context.raw()) }));
    if subscribe(raw::EVENT_LOADING, on_loading) == raw::OK && subscribe(raw::EVENT_SHUTDOWN, on_shutdown) == raw::OK {
        return Ok(());
    }
    Err("the engine's events cannot be followed".to_owned())
}

/// Whether the engine loads a snapshot or its log: meanwhile it runs no timers, and unblocks no client.
pub(crate) fn is_loading() -> bool {
    IS_LOADING.load(Relaxed)
}

unsafe extern "C" fn on_loading(ctx: *mut raw::Ctx, _event: raw::Event, what: u64, _data: *mut c_void) {
    let has_ended = what == raw::LOADING_ENDED || what == raw::LOADING_FAILED;
    IS_LOADING.store(!has_ended, Relaxed);
    if has_ended {
        // SAFETY: the context of this callback.
        guard::or((), || arm(&unsafe { Context::new(ctx) }, true));
    }
}

unsafe extern "C" fn on_shutdown(_ctx: *mut raw::Ctx, _event: raw::Event, _what: u64, _data: *mut c_void) {
    guard::or((), || {
        for shared in value::all() {
            if let Some(held) = shared.try_lock() {
                held.files.iter().for_each(|file| file.remove());
            }
        }
    });
}

/// A command has changed a set: there may be work.
#[inline]
pub(crate) fn touch(context: &Context<'_>, shared: &Arc<Shared>) {
    if !shared.is_awake.load(Relaxed) || !ARMED[1].load(Relaxed) {
        wake(shared);
        arm(context, true);
    }
    if IS_LOADING.load(Relaxed) && LOADED_WRITES.fetch_add(1, Relaxed).is_multiple_of(LOADING_WRITES) {
        work();
    }
}

/// Puts a set into the queue. The timer is set by the next command.
pub(crate) fn wake(shared: &Arc<Shared>) {
    if !shared.is_awake.swap(true, Relaxed) {
        queues().awake.push_back(Arc::downgrade(shared));
    }
}

/// There is work that no command of ours has caused.
pub(crate) fn begin() {
    if let Some(Detached(raw)) = TIMERS.get() {
        // SAFETY: this context stays, and this is the main thread.
        arm(&unsafe { Context::new(*raw) }, true);
    }
}

/// Calls back in a later pass of the engine's loop: in the same pass, one-shot events that such an event adds would run, too.
pub(crate) fn in_later_pass(callback: raw::TimerFunc) {
    if let Some(Detached(raw)) = TIMERS.get() {
        // SAFETY: this context stays, and this is the main thread. The callback has the engine's signature, and gets no data.
        unsafe { (api().create_timer)(*raw, LATER_PASS_MS, callback, std::ptr::null_mut()) };
    }
}

fn arm(context: &Context<'_>, is_work: bool) {
    if !ARMED[usize::from(is_work)].swap(true, Relaxed) {
        let period = if is_work { PERIOD_MS } else { IDLE_PERIOD_MS };
        let data = std::ptr::without_provenance_mut(usize::from(is_work));
        // SAFETY: the context is valid, and the callback takes its data as a number.
        unsafe { (api().create_timer)(context.raw(), period, on_timer, data) };
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::Ctx, data: *mut c_void) {
    guard::or((), || {
        let is_work = data.addr() == 1;
        ARMED[usize::from(is_work)].store(false, Relaxed);
        // SAFETY: the context of this callback.
        let context = unsafe { Context::new(ctx) };
        if !is_work {
            let Queues { waiting, due, .. } = &mut *queues();
            due.append(waiting);
        }
        if work() {
            arm(&context, true);
        }
        if !queues().waiting.is_empty() {
            arm(&context, false);
        }
    });
}

/// Takes over what jobs have written, but not from under commands whose pages have been read.
fn take_outcomes() {
    let mut later = Vec::new();
    for outcome in writer::take_outcomes() {
        match outcome.shared.upgrade() {
            Some(shared) if shared.ready.load(Relaxed) > 0 => later.push(outcome),
            Some(shared) => take_over(&shared, outcome),
            // The set is gone. So is its file, with the outcome.
            None => reaper::free_later(outcome.result),
        }
    }
    ARE_POSTPONED.store(!later.is_empty(), Relaxed);
    writer::put_back(later);
}

/// Commands with pages have run. While clients wait for pages all the time, this is the only moment to replace a file.
pub(crate) fn after_ready() {
    if ARE_POSTPONED.load(Relaxed) {
        take_outcomes();
    }
}

/// One piece of work. Returns whether there is more.
fn work() -> bool {
    take_outcomes();
    let begin = Instant::now();
    let is_summing = sums::go_on();
    let count = queues().len();
    for _ in 0..count {
        let Some(shared) = queues().next() else { continue };
        let Some(mut held) = shared.lock() else { continue };
        let has_more = work_on(&shared, &mut held, begin);
        let is_waiting = held.retry_ms > 0 || held.set().has_tokens();
        drop(held);
        queues().put_back(&shared, has_more, is_waiting);
        if begin.elapsed() >= BUDGET {
            break;
        }
    }
    is_summing || queues().len() > 0
}

fn work_on(shared: &Arc<Shared>, held: &mut Held, begin: Instant) -> bool {
    let now_ms = now_ms();
    // SAFETY: the engine's function reads two figures. 0: there is no `maxmemory`.
    let has_memory = unsafe { (api().get_used_memory_ratio)() } < 1.0;
    let mut step = || if has_memory { held.set().step(now_ms) } else { held.set().step_without_memory(now_ms) };
    let mut has_more = step();
    while has_more && begin.elapsed() < BUDGET {
        has_more = step();
    }
    if !held.has_job && now_ms >= held.retry_ms {
        held.retry_ms = 0;
        if let Some(job) = held.set().next_job() {
            submit(shared, held, job);
        }
    }
    has_more || held.has_job
}

fn submit(shared: &Arc<Shared>, held: &mut Held, job: Job) {
    let source = match &job {
        Job::Merge(_, merge) => held.files.get(merge.file()).cloned(),
        Job::Spill(_) => None,
    };
    held.has_job = true;
    let task = Task { shared: Arc::downgrade(shared), job, file: Draft::new_id(), source };
    if let Err(unsent) = writer::submit(task) {
        let reason = "there is no thread to write it".to_owned();
        match unsent.job {
            Job::Spill(spill) => {
                let serial = spill.serial;
                drop(spill);
                abort(held, serial, false, &reason);
            }
            Job::Merge(serial, _) => abort(held, serial, true, &reason),
        }
    }
}

fn abort(held: &mut Held, serial: u32, is_merge: bool, reason: &str) {
    held.has_job = false;
    held.retry_ms = now_ms() + RETRY_MS;
    if is_merge {
        held.set().abort_merge(serial);
    } else {
        held.set().abort_spill(serial);
    }
    log(Level::Warning, &format!("a cold table cannot be written: {reason}; trying again in {} s", RETRY_MS / 1000));
}

/// Lets a set read from the file that a job has written.
fn take_over(shared: &Arc<Shared>, outcome: Outcome) {
    let Some(mut held) = shared.lock() else { return };
    let held = &mut *held;
    held.has_job = false;
    let serial = outcome.serial;
    match outcome.result {
        Written::Spill(Err(reason)) => abort(held, serial, false, &reason),
        Written::Merge(Err(reason)) => abort(held, serial, true, &reason),
        Written::Spill(Ok((file, index))) => match held.set().finish_spill(serial, file.id, file.name.clone(), index) {
            Some(memory) => {
                held.files.insert(file);
                reaper::free_later(memory);
            }
            None => reaper::free_later(file),
        },
        Written::Merge(Ok((file, merged))) => {
            for page in merged.damaged_pages() {
                let name = &file.name;
                log(Level::Warning, &format!("the merge into {name} met a damaged page ({page}); its ids are refused"));
            }
            match held.set().finish_merge(serial, file.name.clone(), merged) {
                Ok(replaced) => {
                    held.files.insert(file);
                    reaper::free_later((held.files.remove(replaced.file), replaced));
                }
                Err(merged) => reaper::free_later((file, merged)),
            }
        }
    }
    wake(shared);
}
