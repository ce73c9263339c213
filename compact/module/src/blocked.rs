//! Commands that wait for pages of cold tables: their clients are blocked, and the engine serves others.
//!
//! A command that needs pages changes nothing. Readers read them and search them for its ids, because the search of many pages would hold
//! the engine. Then the command runs again from its start with the records that were found. A file never changes, so these records stay
//! valid, whatever happened to the set meanwhile: what was written since is in memory, and a file that has replaced another one is read
//! again. Before that, on the main thread, [`on_ready`] checks whether a file was replaced, and whether the engine lets the command
//! write: while clients are paused (a failover), nothing may be replicated.
//!
//! The pages of all commands together have a bound. A command beyond it is in a queue, which has a bound, too.

use crate::commands::Unread;
use crate::context::{Context, is_paused};
use crate::raw::{self, api};
use crate::readers::{self, Reads, Task};
use crate::value::{Held, Shared};
use crate::{args::Args, background, guard, reaper};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tallystone_compact::{Fetched, Need};

/// How long a client waits for the disk.
const TIMEOUT_MS: i64 = 30_000;
/// How often pages are read again for one command; after that, it says what it lacks.
const ROUNDS_MAX: u32 = 8;

/// Pages of all commands together, at most: 64 MiB. A command that is alone may have more.
const PAGES_MAX: usize = 16_384;
/// Records that take the memory of a page.
const PAGE_RECORDS: usize = 32;

/// Commands that have waited since the start.
pub(crate) static WAITS: AtomicU64 = AtomicU64::new(0);

/// The answer to a client that has waited for too long.
pub(crate) const TOO_LATE: &str = "COLD the pages were not read in time";

/// Pages that are read, or being read, for commands that have not run yet, and the memory of their records in pages.
pub(crate) static PAGES_HELD: AtomicUsize = AtomicUsize::new(0);

/// A command whose pages are being read.
struct Wait {
    client: Client,
    since: Instant,
    shared: Weak<Shared>,
    ids: Vec<u64>,
    /// Its part of [`PAGES_HELD`].
    held: AtomicUsize,
    is_write: bool,
    /// The number of pages that are being read.
    missing: AtomicUsize,
    rounds: AtomicU32,
    /// What the main thread had, and found in the cache, when it located the ids. Only the main thread takes the lock: readers may hold
    /// the other one for long.
    along: Mutex<Fetched>,
    /// What readers have found since then.
    fetched: Mutex<Fetched>,
}

/// The engine's handle of a blocked client.
struct Client(*mut raw::BlockedClient);

// SAFETY: the handle is used by the main thread only; other threads pass it on.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// What a command gets when it runs again.
struct Ready {
    fetched: Fetched,
    /// Its client has waited for too long: the command must not read pages while the engine waits.
    is_late: bool,
    held: usize,
    shared: Weak<Shared>,
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Of a command that does not run again: its client is gone.
        reaper::free_pages(std::mem::take(&mut self.fetched));
        PAGES_HELD.fetch_sub(self.held, Relaxed);
        if let Some(shared) = self.shared.upgrade() {
            shared.ready.fetch_sub(1, Relaxed);
            // The background adds what was read to the cache.
            background::wake(&shared);
        }
    }
}

/// A command whose pages are not being read yet.
struct Queued {
    wait: Arc<Wait>,
    /// What it will hold.
    room: usize,
    /// What it needs. For a command with ids, that is determined when it is read.
    needs: Vec<Need>,
}

/// Only the main thread takes the lock.
static QUEUE: Mutex<VecDeque<Queued>> = Mutex::new(VecDeque::new());
/// The most commands in the queue. Each takes up to some 12 KiB.
const QUEUE_MAX: usize = 4_096;
/// Ids of commands in the queue that are located at once.
const LOCATED_MAX: usize = 1_024;
/// Whether the rest of the queue is left to a later pass.
static IS_POSTPONED: AtomicBool = AtomicBool::new(false);
static READY: Mutex<Vec<Arc<Wait>>> = Mutex::new(Vec::new());
/// Commands that the engine does not let write. Only the main thread takes the lock.
static PAUSED: Mutex<Vec<Arc<Wait>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks the client of a command until its pages have been read. The engine then calls `resumed`.
pub(crate) fn wait(context: &Context<'_>, unread: Unread, is_write: bool, resumed: raw::CommandFunc) {
    read_queued();
    if lock(&QUEUE).len() + lock(&PAUSED).len() >= QUEUE_MAX {
        return context.reply_error("COLD too many commands wait for the disk; nothing was changed");
    }
    WAITS.fetch_add(1, Relaxed);
    // SAFETY: the context is that of a command whose client may be blocked. The callbacks have the engine's signatures.
    let client = unsafe {
        let client = (api().block_client)(context.raw(), resumed, on_timeout, free_private, TIMEOUT_MS);
        (api().measure_time_start)(client);
        client
    };
    let Unread { shared, needs, along, ids } = unread;
    let wait = Arc::new(Wait {
        client: Client(client),
        since: Instant::now(),
        shared: Arc::downgrade(&shared),
        ids,
        held: AtomicUsize::new(0),
        is_write,
        missing: AtomicUsize::new(0),
        rounds: AtomicU32::new(0),
        along: Mutex::new(along),
        fetched: Mutex::default(),
    });
    let room = room(&needs, &wait);
    let is_next = lock(&QUEUE).is_empty() && has_room(room);
    if is_next && let Some(held) = shared.lock() {
        wait.hold(room);
        return read(&wait, &held, &needs);
    }
    let needs = if wait.ids.is_empty() { needs } else { Vec::new() };
    *lock(&wait.along) = Fetched::none();
    lock(&QUEUE).push_back(Queued { wait, room, needs });
    read_queued();
}

/// What is needed, page by page.
pub(crate) fn pages(needs: &[Need]) -> impl Iterator<Item = &[Need]> {
    needs.chunk_by(|one, next| one.page == next.page)
}

/// The pages that a command reserves when it begins to read.
fn room(needs: &[Need], wait: &Wait) -> usize {
    pages(needs).count() + wait.ids.len() / PAGE_RECORDS
}

fn has_room(room: usize) -> bool {
    let held = PAGES_HELD.load(Relaxed);
    held == 0 || held + room <= PAGES_MAX
}

/// The next command of the queue, if there is room for what it reads. `located`: the ids of those before it. After [`LOCATED_MAX`] of them,
/// the rest of the queue is left to a later pass of the engine: commands whose records the cache has take no room, so there would be
/// room for all of them.
fn next_queued(located: &mut usize) -> Option<Queued> {
    let mut queue = lock(&QUEUE);
    let first = queue.front()?;
    if first.wait.is_late() {
        return queue.pop_front();
    }
    if IS_POSTPONED.load(Relaxed) || !has_room(first.room) {
        return None;
    }
    *located += first.wait.ids.len();
    if *located > LOCATED_MAX {
        IS_POSTPONED.store(true, Relaxed);
        background::in_later_pass(on_later_pass);
        return None;
    }
    queue.pop_front()
}

unsafe extern "C" fn on_later_pass(_ctx: *mut raw::Ctx, _data: *mut c_void) {
    guard::or((), || {
        IS_POSTPONED.store(false, Relaxed);
        read_queued();
    });
}

/// Reads the pages of the commands in the queue, as far as there is room. Nothing is read for a command whose client has had its answer:
/// with a disk that is too slow for all, those that come later would wait too long, too. Nor for one that must not write now.
fn read_queued() {
    let mut located = 0;
    while let Some(Queued { wait, mut needs, .. }) = next_queued(&mut located) {
        if wait.is_write && !wait.is_late() && is_paused() {
            pause(wait);
            continue;
        }
        let shared = wait.shared.upgrade();
        match shared.as_ref().and_then(|shared| shared.lock()).filter(|_| !wait.is_late()) {
            Some(mut held) => {
                let mut fetched = Fetched::none();
                if !wait.ids.is_empty() {
                    // Files may have been replaced meanwhile.
                    needs = held.set().gather(wait.ids.iter().copied(), &mut fetched);
                }
                if needs.is_empty() {
                    unblock(&wait, fetched);
                } else {
                    *lock(&wait.along) = fetched;
                    wait.hold(room(&needs, &wait));
                    read(&wait, &held, &needs);
                }
            }
            None => unblock(&wait, Fetched::none()),
        }
    }
}

impl Wait {
    /// Whether the engine has answered its client, or would not run the command any more.
    fn is_late(&self) -> bool {
        self.since.elapsed() >= Duration::from_millis(TIMEOUT_MS.cast_unsigned())
    }

    fn hold(&self, room: usize) {
        PAGES_HELD.fetch_add(room, Relaxed);
        self.held.fetch_add(room, Relaxed);
    }

    /// All that is known. No reader reads for it now.
    fn take_fetched(&self) -> Fetched {
        let mut fetched = std::mem::take(&mut *lock(&self.along));
        fetched.append(std::mem::take(&mut *lock(&self.fetched)));
        fetched
    }

    /// Frees what was read for it. It is read again when it goes on.
    fn free_pages(&self) {
        PAGES_HELD.fetch_sub(self.held.swap(0, Relaxed), Relaxed);
        reaper::free_pages(self.take_fetched());
    }
}

/// Reads what a command needs: one task for each file.
fn read(wait: &Arc<Wait>, held: &Held, needs: &[Need]) {
    wait.missing.fetch_add(pages(needs).count(), Relaxed);
    for needs in needs.chunk_by(|one, next| one.page.file == next.page.file) {
        let file = held.files.get(needs[0].page.file).cloned();
        let needs = needs.iter().rev().copied().collect();
        readers::submit(Task::Read(Reads { file, wait: wait.clone(), needs }));
    }
}

impl readers::Wait for Wait {
    fn add(self: Arc<Wait>, read: Fetched) {
        lock(&self.fetched).append(read);
        if self.missing.fetch_sub(1, AcqRel) == 1 {
            let mut ready = lock(&READY);
            ready.push(self);
            let is_first = ready.len() == 1;
            drop(ready);
            if is_first {
                wake_engine();
            }
        }
    }
}

/// Has the main thread run the commands that can go on. Called by readers.
fn wake_engine() {
    // SAFETY: the engine takes this from any thread; the callback uses no data.
    unsafe { (api().event_loop_add_one_shot)(on_ready, std::ptr::null_mut()) };
}

unsafe extern "C" fn on_ready(_data: *mut c_void) {
    guard::or((), || {
        let mut ready = std::mem::take(&mut *lock(&READY));
        ready.append(&mut lock(&PAUSED));
        for wait in ready {
            go_on(wait);
        }
    });
}

fn go_on(wait: Arc<Wait>) {
    if wait.is_write && is_paused() {
        // Reads go on during a pause of writes, and need the room.
        wait.free_pages();
        pause(wait);
        return read_queued();
    }
    let mut fetched = wait.take_fetched();
    if wait.held.load(Relaxed) == 0 {
        // After a pause. Its pages are chosen when they are read.
        lock(&QUEUE).push_back(Queued { wait, room: 0, needs: Vec::new() });
        return read_queued();
    }
    if let Some(shared) = wait.shared.upgrade()
        && let Some(mut held) = shared.lock()
        && !held.set().is_complete(&fetched)
        && !wait.is_late()
    {
        let needs = held.set().gather(wait.ids.iter().copied(), &mut fetched);
        if !needs.is_empty() && wait.rounds.fetch_add(1, Relaxed) < ROUNDS_MAX {
            *lock(&wait.along) = fetched;
            wait.hold(pages(&needs).count());
            read(&wait, &held, &needs);
            return;
        }
    }
    unblock(&wait, fetched);
}

/// Sets a command aside that the engine does not let write.
fn pause(wait: Arc<Wait>) {
    let mut paused = lock(&PAUSED);
    paused.push(wait);
    if paused.len() == 1 {
        readers::submit(Task::Pause(wake_engine));
    }
}

/// The command runs again before the engine sleeps next.
fn unblock(wait: &Wait, fetched: Fetched) {
    if let Some(shared) = wait.shared.upgrade() {
        shared.ready.fetch_add(1, Relaxed);
    }
    let (is_late, held, shared) = (wait.is_late(), wait.held.load(Relaxed), wait.shared.clone());
    let ready = Box::new(Ready { fetched, is_late, held, shared });
    // SAFETY: each handle is unblocked once, also if its client is gone; the engine gives `ready` to `free_private`.
    unsafe {
        (api().measure_time_end)(wait.client.0);
        (api().unblock_client)(wait.client.0, Box::into_raw(ready).cast());
    }
}

/// The pages of a command that runs again. They are given once. `None`: its client has waited for too long.
///
/// # Safety
/// The context is that of the reply callback of a client that `unblock` has given its data.
pub(crate) unsafe fn take_fetched(context: &Context<'_>) -> Option<Fetched> {
    // SAFETY: the caller's promise. The engine frees the data after the callback, and nothing else refers to it.
    let ready = unsafe { &mut *(api().get_blocked_client_private_data)(context.raw()).cast::<Ready>() };
    (!ready.is_late).then(|| std::mem::take(&mut ready.fetched))
}

unsafe extern "C" fn free_private(_ctx: *mut raw::Ctx, data: *mut c_void) {
    guard::or((), || {
        // SAFETY: `unblock` has made it, and the engine gives it back once.
        drop(unsafe { Box::from_raw(data.cast::<Ready>()) });
        background::after_ready();
        background::begin();
        read_queued();
    });
}

unsafe extern "C" fn on_timeout(ctx: *mut raw::Ctx, argv: *mut *mut raw::Str, argc: c_int) -> c_int {
    guard::or(raw::OK, || {
        // SAFETY: the context and arguments of this callback.
        let (context, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
        let name = String::from_utf8_lossy(if args.len() > 0 { args.get(0) } else { b"" }).into_owned();
        context.reply_error(&format!("{TOO_LATE}; {name} has changed nothing"));
        raw::OK
    })
}
