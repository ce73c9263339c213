//! Vectors that keep their memory between commands, so that the usual command allocates nothing.

use std::cell::RefCell;

/// Room that one command uses.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) ids: Vec<u64>,
    pub(crate) pairs: Vec<(u8, i64)>,
    pub(crate) fields: Vec<u8>,
    pub(crate) values: Vec<i64>,
    pub(crate) bytes: Vec<u8>,
}

/// Items of a vector that are kept at most.
const KEPT_MAX: usize = 16_384;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Gives a command its room. It must not run another command inside.
#[inline]
pub(crate) fn with<T>(run: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.ids.clear();
        scratch.pairs.clear();
        scratch.fields.clear();
        scratch.values.clear();
        scratch.bytes.clear();
        let result = run(scratch);
        if scratch.bytes.capacity() > 8 * KEPT_MAX {
            scratch.bytes = Vec::new();
        }
        result
    })
}
