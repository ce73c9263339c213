//! Threads that read pages of cold tables.

use crate::files::PageFile;
use crate::guard;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_compact::{Page, PageFault, PageRef};

/// How long a command waits that the engine does not let write yet.
const PAUSE: Duration = Duration::from_millis(5);

/// What waits for pages.
pub(crate) trait Wait: Send + Sync {
    /// Takes what reading a page gave. Called by readers.
    fn add(self: Arc<Self>, page: PageRef, read: Result<Page, PageFault>);
}

/// Work of a reader.
pub(crate) enum Task {
    /// Read a page for a command. Without a file, the page cannot be read.
    Read { page: PageRef, file: Option<Arc<PageFile>>, wait: Arc<dyn Wait> },
    /// After a while, look again at what could not go on.
    Pause(fn()),
}

static QUEUE: Mutex<VecDeque<Task>> = Mutex::new(VecDeque::new());
static ADDED: Condvar = Condvar::new();
/// Pages that were read by threads since the start.
pub(crate) static PAGES_READ: AtomicU64 = AtomicU64::new(0);

fn queue() -> MutexGuard<'static, VecDeque<Task>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the threads.
pub(crate) fn start(count: usize) {
    for number in 0..count {
        let thread = std::thread::Builder::new().name(format!("ct-reader-{number}"));
        if let Err(error) = thread.spawn(read_on) {
            crate::context::log(crate::context::Level::Warning, &format!("a reader cannot be started: {error}"));
        }
    }
}

/// Hands tasks to the threads. Main thread only: no other holds this lock for long, and a forked child does not take it.
pub(crate) fn submit(tasks: impl IntoIterator<Item = Task>) {
    let mut queue = queue();
    let before = queue.len();
    queue.extend(tasks);
    let added = queue.len() - before;
    drop(queue);
    if added == 1 {
        ADDED.notify_one();
    } else {
        ADDED.notify_all();
    }
}

/// So the engine's thread runs first where threads have to share a core.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

fn read_on() {
    // Of this thread, on Linux; of the whole process elsewhere.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICE);
    loop {
        let mut waiting = queue();
        let task = loop {
            match waiting.pop_front() {
                Some(task) => break task,
                None => waiting = ADDED.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(waiting);
        match task {
            Task::Pause(look_again) => {
                std::thread::sleep(PAUSE);
                look_again();
            }
            Task::Read { page, file, wait } => {
                let unread = |reason: &str| Err(PageFault::Unread(reason.to_owned()));
                let read = guard::or(unread("a bug"), || match &file {
                    Some(file) => file.read(page),
                    None => unread("the file is not open"),
                });
                PAGES_READ.fetch_add(1, Relaxed);
                drop(file);
                wait.add(page, read);
            }
        }
    }
}
