//! The thread that writes the files of cold tables, and its jobs.

use crate::files::{Draft, PageFile};
use crate::guard;
use crate::value::Shared;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tallystone_compact::{FileId, Job, Merged, PAGE_BYTES, PageIndex};

/// A job of a set.
pub(crate) struct Task {
    pub(crate) shared: Weak<Shared>,
    pub(crate) job: Job,
    /// The identity of the file to write.
    pub(crate) file: FileId,
    /// The file that a merge reads.
    pub(crate) source: Option<Arc<PageFile>>,
}

/// What became of a job. The set takes it over on the main thread.
pub(crate) struct Outcome {
    pub(crate) shared: Weak<Shared>,
    /// The serial of the table.
    pub(crate) serial: u32,
    pub(crate) result: Written,
}

/// The file that was written, or why there is none.
pub(crate) enum Written {
    Spill(Result<(PageFile, PageIndex), String>),
    Merge(Result<(PageFile, Merged), String>),
}

static QUEUE: OnceLock<Option<Sender<Task>>> = OnceLock::new();
static DONE: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());

/// Hands a job to the thread. `Err`: there is no thread.
pub(crate) fn submit(task: Task) -> Result<(), Box<Task>> {
    let queue = QUEUE.get_or_init(|| {
        let (queue, tasks) = channel::<Task>();
        let work = move || {
            for task in tasks {
                let outcome = run(task);
                DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
            }
        };
        std::thread::Builder::new().name("ct-writer".to_owned()).spawn(work).ok().map(|_| queue)
    });
    match queue {
        Some(queue) => queue.send(task).map_err(|unsent| Box::new(unsent.0)),
        None => Err(Box::new(task)),
    }
}

/// The outcomes since the last call.
pub(crate) fn take_outcomes() -> Vec<Outcome> {
    std::mem::take(&mut *DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Puts back what cannot be taken over yet.
pub(crate) fn put_back(outcomes: Vec<Outcome>) {
    DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(outcomes);
}

fn run(task: Task) -> Outcome {
    let Task { shared, job, file, source } = task;
    let bug = || "a bug; see above".to_owned();
    match job {
        Job::Spill(spill) => {
            let serial = spill.serial;
            // The job is dropped before its outcome is seen: the set then frees the table.
            let result = guard::or(Err(bug()), move || {
                write(file, |append| spill.write(file, &mut |page: &[u8; PAGE_BYTES]| append(page)))
            });
            Outcome { shared, serial, result: Written::Spill(result) }
        }
        Job::Merge(serial, merge) => {
            let result = guard::or(Err(bug()), move || {
                let source = source.ok_or("the file of the table is not open")?;
                write(file, |append| {
                    merge.run(file, &mut |page| source.read(page), &mut |page: &[u8; PAGE_BYTES]| append(page))
                })
            });
            Outcome { shared, serial, result: Written::Merge(result) }
        }
    }
}

type Append<'a> = dyn FnMut(&[u8; PAGE_BYTES]) -> Result<(), String> + 'a;

/// Writes a file with the pages that `pages` appends.
fn write<T>(id: FileId, pages: impl FnOnce(&mut Append<'_>) -> Result<T, String>) -> Result<(PageFile, T), String> {
    let mut draft = Draft::create(id)?;
    let written = pages(&mut |page| draft.append(page))?;
    Ok((draft.finish(true)?, written))
}
