//! A thread that frees memory, so that deleting a large set does not hold the engine.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

static QUEUE: OnceLock<Sender<Box<dyn Any + Send>>> = OnceLock::new();

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
