//! Commands of many cold ids look at some of them after the other, because a look at all would hold the engine.

use super::{Wait, go_on, lock, read};
use crate::{background, guard, raw};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex};

/// Commands with ids to look at. Only the main thread takes the lock.
static LOOKING: Mutex<VecDeque<Arc<Wait>>> = Mutex::new(VecDeque::new());

/// The command goes on when the engine has served other clients.
pub(super) fn look_later(wait: Arc<Wait>) {
    let mut looking = lock(&LOOKING);
    looking.push_back(wait);
    if looking.len() == 1 {
        background::soon(on_look);
    }
}

/// One command looks at some of its ids: all at once would hold the engine.
unsafe extern "C" fn on_look(_ctx: *mut raw::Ctx, _data: *mut c_void) {
    guard::or((), || {
        let mut looking = lock(&LOOKING);
        let next = looking.pop_front();
        if !looking.is_empty() {
            background::soon(on_look);
        }
        drop(looking);
        next.into_iter().for_each(look_on);
    });
}

fn look_on(wait: Arc<Wait>) {
    let shared = wait.shared.upgrade().filter(|_| !wait.is_late());
    if let Some(mut held) = shared.as_ref().and_then(|shared| shared.lock()) {
        let from = wait.looked.load(Relaxed);
        let (needs, looked) = held.set().gather_part(&wait.ids, from, &mut lock(&wait.along));
        wait.looked.store(looked, Relaxed);
        read(&wait, &held, &needs);
        if wait.unlooked() > 0 {
            return look_later(wait);
        }
    }
    // The set is gone, or all ids were looked at.
    if wait.missing.fetch_sub(1, AcqRel) == 1 {
        go_on(wait);
    }
}
