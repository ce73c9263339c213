//! Steps of commands on the main thread, between which the engine serves other clients.

use crate::{background, guard, raw};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steps run one after the other until they have taken this long. The engine runs a timer each millisecond at most, so one step for each
/// timer would leave it idle.
const TURN_MAX: Duration = Duration::from_micros(300);

/// One step of a command.
pub(super) type Step = Box<dyn FnOnce() + Send>;

struct Steps {
    waiting: VecDeque<Step>,
    /// Whether a timer is set, or runs.
    has_timer: bool,
}

/// Only the main thread takes the lock.
static STEPS: Mutex<Steps> = Mutex::new(Steps { waiting: VecDeque::new(), has_timer: false });

fn steps() -> MutexGuard<'static, Steps> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the step when the engine has served other clients.
pub(super) fn later(step: Step) {
    let mut steps = steps();
    steps.waiting.push_back(step);
    if !std::mem::replace(&mut steps.has_timer, true) {
        background::soon(on_steps);
    }
}

/// Runs some steps. All steps at once would hold the engine for too long.
unsafe extern "C" fn on_steps(_ctx: *mut raw::Ctx, _data: *mut c_void) {
    let began = Instant::now();
    // A step that fails ends the loop, and not the timer.
    guard::or((), || {
        while began.elapsed() < TURN_MAX {
            // The lock is not held while the step runs: it may have another step run later.
            let Some(step) = steps().waiting.pop_front() else { return };
            step();
        }
    });
    let mut steps = steps();
    steps.has_timer = !steps.waiting.is_empty();
    if steps.has_timer {
        background::soon(on_steps);
    }
}
