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

/// Gives a command its room.
#[inline]
pub(crate) fn with<T>(run: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.ids.clear();
            scratch.pairs.clear();
            scratch.fields.clear();
            scratch.values.clear();
            scratch.bytes.clear();
            let result = run(&mut scratch);
            if scratch.bytes.capacity() > 8 * KEPT_MAX {
                scratch.bytes = Vec::new();
            }
            result
        }
        // Another module was notified of the outer command's change, and calls one of our commands.
        Err(_) => run(&mut Scratch::default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_a_command_may_run_within_another_one() {
        let ids = with(|outer| {
            outer.ids.push(1);
            let inner = with(|inner| {
                inner.ids.push(2);
                inner.ids.clone()
            });
            (outer.ids.clone(), inner)
        });
        assert_eq!((ids, with(|next| next.ids.len())), ((vec![1], vec![2]), 0));
    }
}
