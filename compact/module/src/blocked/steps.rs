//! Steps of commands on the main thread, between which the engine serves other clients.

use crate::{background, guard, raw};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One step of a command.
pub(super) type Step = Box<dyn FnOnce() + Send>;

/// Only the main thread takes the lock.
static STEPS: Mutex<VecDeque<Step>> = Mutex::new(VecDeque::new());

fn steps() -> MutexGuard<'static, VecDeque<Step>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the step when the engine has served other clients.
pub(super) fn later(step: Step) {
    let mut steps = steps();
    steps.push_back(step);
    if steps.len() == 1 {
        background::soon(on_step);
    }
}

/// Runs one step. All steps at once would hold the engine for too long.
unsafe extern "C" fn on_step(_ctx: *mut raw::Ctx, _data: *mut c_void) {
    guard::or((), || {
        let mut waiting = steps();
        let next = waiting.pop_front();
        if !waiting.is_empty() {
            background::soon(on_step);
        }
        drop(waiting);
        next.into_iter().for_each(|step| step());
    });
}
