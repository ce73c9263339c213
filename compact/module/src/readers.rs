//! Threads that read pages of cold tables, and search them for the ids of the command.

use crate::files::PageFile;
use crate::guard;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_compact::{Fetched, Need, PageFault};

/// How long a command waits that the engine does not let write yet.
const PAUSE: Duration = Duration::from_millis(5);

/// What waits for pages.
pub(crate) trait Wait: Send + Sync {
    /// Takes what reading one page gave. Called by readers.
    fn add(self: Arc<Self>, read: Fetched);
}

/// Work of a reader.
pub(crate) enum Task {
    /// Read pages of a file for a command.
    Read(Reads),
    /// After a while, look again at what could not go on.
    Pause(fn()),
}

/// Pages of a file to read for a command. A thread takes one of them: the task of all would take the engine's thread longer to make.
pub(crate) struct Reads {
    /// Without a file, the pages cannot be read.
    pub(crate) file: Option<Arc<PageFile>>,
    pub(crate) wait: Arc<dyn Wait>,
    /// In falling order, not empty: the next page is at the end.
    pub(crate) needs: Vec<Need>,
}

impl Reads {
    /// Takes the next page off. `None`: it is the last one.
    fn split(&mut self) -> Option<Reads> {
        let page = self.needs.last()?.page;
        let begin = self.needs.iter().rposition(|need| need.page != page)? + 1;
        Some(Reads { file: self.file.clone(), wait: self.wait.clone(), needs: self.needs.split_off(begin) })
    }

    /// Reads the one page.
    fn read(&self) -> Fetched {
        let Some(page) = self.needs.last().map(|need| need.page) else { return Fetched::none() };
        let failed = |reason: &str| Fetched::of(page, &self.needs, Err(PageFault::Unread(reason.to_owned())));
        guard::or(failed("a bug"), || match &self.file {
            Some(file) => Fetched::of(page, &self.needs, file.read(page)),
            None => failed("the file is not open"),
        })
    }
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

/// Hands a task to the threads. Main thread only: no other holds this lock for long, and a forked child does not take it.
pub(crate) fn submit(task: Task) {
    let is_one = match &task {
        // All of one file, in order: the first and the last are of the same page if all are.
        Task::Read(reads) => reads.needs.first().map(|need| need.page) == reads.needs.last().map(|need| need.page),
        Task::Pause(_) => true,
    };
    queue().push_back(task);
    if is_one {
        ADDED.notify_one();
    } else {
        ADDED.notify_all();
    }
}

/// The next task of a thread: one page.
fn next(queue: &mut VecDeque<Task>) -> Option<Task> {
    match queue.front_mut()? {
        Task::Read(reads) => reads.split().map(Task::Read).or_else(|| queue.pop_front()),
        Task::Pause(_) => queue.pop_front(),
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
            match next(&mut waiting) {
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
            Task::Read(reads) => {
                let read = reads.read();
                PAGES_READ.fetch_add(1, Relaxed);
                let Reads { file, wait, .. } = reads;
                drop(file);
                wait.add(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_compact::{FileId, PageRef};

    struct Nothing;

    impl Wait for Nothing {
        fn add(self: Arc<Self>, _: Fetched) {}
    }

    #[test]
    fn w3_a_thread_takes_one_page_with_all_that_is_needed_of_it() {
        let need = |page: u32, id: u64| Need { page: PageRef { file: FileId(1), page }, id: Some(id) };
        let needs = [need(0, 1), need(2, 700), need(2, 701), need(2, 702), need(5, 2_000)];
        let reads = |needs: &[Need]| {
            Task::Read(Reads { file: None, wait: Arc::new(Nothing), needs: needs.iter().rev().copied().collect() })
        };
        let mut queue = VecDeque::from([reads(&needs), Task::Pause(|| {}), reads(&needs[1..4])]);
        let taken = std::iter::from_fn(|| {
            next(&mut queue).map(|task| match task {
                Task::Read(reads) => {
                    // Without a file, each page of it fails.
                    assert_eq!(reads.read().len(), 1);
                    let mut needs = reads.needs;
                    needs.reverse();
                    needs
                }
                Task::Pause(_) => Vec::new(),
            })
        });
        let expected = [&needs[..1], &needs[1..4], &needs[4..], &[], &needs[1..4]];
        assert!(taken.eq(expected));
    }
}
