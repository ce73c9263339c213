//! The set of the latest command: the next one probably uses it, too. So the memory of its id is on its way while the engine opens the key.

use crate::args::Args;
use crate::value::Shared;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// A set, and the name of its key.
struct Latest {
    name: Vec<u8>,
    shared: Weak<Shared>,
}

thread_local! {
    static LATEST: RefCell<Latest> = const { RefCell::new(Latest { name: Vec::new(), shared: Weak::new() }) };
}

/// Begins to load the memory of an id, if the key is that of the latest command. Returns whether it is. Only a hint: the command finds its
/// set by its key.
#[inline]
pub(crate) fn prefetch(args: &Args<'_>, id: u64) -> bool {
    LATEST.with_borrow(|latest| {
        if latest.name != args.get(1) {
            return false;
        }
        let Some(shared) = latest.shared.upgrade() else { return false };
        let Some(mut held) = shared.try_lock() else { return false };
        let memory = held.set().memory_of(id);
        load(memory)
    })
}

/// The command uses this set.
#[inline]
pub(crate) fn remember(args: &Args<'_>, shared: &Arc<Shared>) {
    LATEST.with_borrow_mut(|latest| {
        if latest.shared.as_ptr() != Arc::as_ptr(shared) || latest.name != args.get(1) {
            *latest = Latest { name: args.get(1).to_vec(), shared: Arc::downgrade(shared) };
        }
    });
}

/// Begins to load memory, and waits for none of it: the processor goes on, which after a read it does for some hundred instructions only.
#[cfg(target_arch = "x86_64")]
#[inline]
fn load(memory: &[u8]) -> bool {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    use tallystone_compact::LINE_BYTES;
    for byte in memory.iter().step_by(LINE_BYTES).chain(memory.last()) {
        // SAFETY: a prefetch has no effect but on the time of later reads.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    true
}

/// The language has no prefetch for this processor.
#[cfg(not(target_arch = "x86_64"))]
fn load(_: &[u8]) -> bool {
    false
}
