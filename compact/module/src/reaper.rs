//! A thread that frees memory, so that deleting a large set does not hold the engine.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use tallystone_compact::Fetched;

/// Pages that are freed at once, at most: to wake the thread costs as much.
const PAGES_SMALL: usize = 64;

static QUEUE: OnceLock<Sender<Box<dyn Any + Send>>> = OnceLock::new();

/// Frees the pages of a command: at once if they are few.
pub(crate) fn free_pages(pages: Fetched) {
    if pages.len() > PAGES_SMALL {
        free_later(pages);
    }
}

/// Frees something soon, on another thread.
pub(crate) fn free_later<T: Send + 'static>(memory: T) {
    let queue = QUEUE.get_or_init(|| {
        let (queue, waiting) = channel::<Box<dyn Any + Send>>();
        let reap = move || waiting.into_iter().for_each(drop);
        // Without a thread the receiver is gone, and what is sent is freed at once.
        let _ = std::thread::Builder::new().name("ct-reaper".to_owned()).spawn(reap);
        queue
    });
    let _ = queue.send(Box::new(memory));
}
