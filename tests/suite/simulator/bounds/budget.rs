//! What one script call may cost. The figures follow from the limits of requests, not from what the scripts need today.

use crate::simulator::bounds::real::Measured;
use tallystone_model::limits::BATCH_BYTES_MAX;
use tallystone_simulator::{Metered, Work};

/// Commands of a call that has nothing to do.
const COMMANDS: u64 = 100;
/// Commands for one item, and as many for each filter index of its queue.
const ITEM_COMMANDS: u64 = 16;
/// Bytes that do not depend on the number of items: the payloads that a script may read without an answer that has them.
const BYTES: u64 = 3 * BATCH_BYTES_MAX as u64;
/// Bytes for one item, without its payload: its records, its event, and as many for each filter index.
const ITEM_BYTES: u64 = 8 * 1024;
/// The largest reply.
const REPLY_BYTES: u64 = 4 * BATCH_BYTES_MAX as u64;
/// The maximum of commands of any call: Redis executes this number in about 20 ms.
const COMMANDS_MAX: u64 = 24_000;
/// Bytes of any call.
const BYTES_MAX: u64 = 8 * BATCH_BYTES_MAX as u64;

/// What a case does, which decides what it may cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    /// Items of the request, or of the reply where the request has only a limit.
    pub(crate) items: usize,
    /// Messages, records and requests that one call also moves or examines, as the bounds of its parts say.
    pub(crate) moved: usize,
    /// The filter indexes that it has to keep.
    pub(crate) indexes: usize,
}

impl Scope {
    fn units(self) -> u64 {
        ((self.items + self.moved) * (1 + self.indexes)) as u64
    }
}

/// The calls of one script in one state.
pub(crate) struct Case {
    script: &'static str,
    what: &'static str,
    size: usize,
    scope: Scope,
    calls: Vec<Measured>,
}

/// A case that exceeds the budget.
#[derive(Debug)]
pub(crate) struct Excess {
    /// The script.
    pub(crate) script: &'static str,
    /// The case.
    pub(crate) what: &'static str,
}

impl Excess {
    pub(crate) fn is(&self, case: &Case) -> bool {
        self.script == case.script && self.what == case.what
    }
}

impl Case {
    /// # Panics
    /// If the script was not called.
    pub(crate) fn new(
        script: &'static str,
        what: &'static str,
        size: usize,
        scope: Scope,
        calls: Vec<Measured>,
    ) -> Case {
        assert!(!calls.is_empty(), "{script}, {what}: it was not called");
        assert!(calls.iter().all(|measured| measured.call.reply_bytes > 0), "{script}, {what}: it failed");
        Case { script, what, size, scope, calls }
    }

    fn calls(&self) -> impl Iterator<Item = &Metered> {
        self.calls.iter().map(|measured| &measured.call)
    }

    fn most(&self) -> Work {
        let most = |of: fn(&Metered) -> u64| self.calls().map(of).max().unwrap_or_default();
        Work { commands: most(|call| call.work.commands), bytes: most(|call| call.work.bytes) }
    }

    fn budget(&self, call: &Metered) -> Work {
        let units = self.scope.units();
        Work {
            commands: COMMANDS_MAX.min(COMMANDS + ITEM_COMMANDS * units),
            bytes: BYTES_MAX.min(BYTES + call.request_bytes + call.reply_bytes + ITEM_BYTES * units),
        }
    }

    pub(crate) fn header() -> String {
        format!(
            "{:<20} {:<34} {:>4} {:>5} {:>6} {:>8} {:>8} {:>12} {:>12} {:>12} {:>6}",
            "script", "case", "size", "calls", "items", "commands", "of", "bytes", "of", "reply", "ms"
        )
    }

    pub(crate) fn row(&self) -> String {
        let most = self.most();
        let tightest = self.calls().map(|call| self.budget(call));
        let of = tightest.min_by_key(|budget| budget.bytes).unwrap_or_default();
        let slowest = self.calls.iter().filter_map(|measured| measured.ms).max_by(f64::total_cmp);
        let ms = slowest.map_or(String::new(), |ms| format!("{ms:.1}"));
        let reply = self.calls().map(|call| call.reply_bytes).max().unwrap_or_default();
        format!(
            "{:<20} {:<34} {:>4} {:>5} {:>6} {:>8} {:>8} {:>12} {:>12} {:>12} {ms:>6}",
            self.script,
            self.what,
            self.size,
            self.calls.len(),
            self.scope.items + self.scope.moved,
            most.commands,
            of.commands,
            most.bytes,
            of.bytes,
            reply,
        )
    }

    /// The call that exceeds the budget most, and what it did.
    pub(crate) fn excess(&self) -> Option<String> {
        let exceeds = |call: &&Metered| {
            let budget = self.budget(call);
            call.work.commands > budget.commands || call.work.bytes > budget.bytes || call.reply_bytes > REPLY_BYTES
        };
        let call = self.calls().filter(exceeds).max_by_key(|call| call.work.bytes)?;
        let mut by_command: Vec<_> = call.by_command.iter().collect();
        by_command.sort_by_key(|(_, work)| std::cmp::Reverse((work.bytes, work.commands)));
        let commands =
            by_command.iter().take(6).map(|(name, work)| format!("{} {name} {} B", work.commands, work.bytes));
        let Work { commands: of_commands, bytes: of_bytes } = self.budget(call);
        Some(format!(
            "{}, {} (size {}): {} commands of {of_commands}, {} bytes of {of_bytes}, {} in the reply of {REPLY_BYTES}; {}",
            self.script,
            self.what,
            self.size,
            call.work.commands,
            call.work.bytes,
            call.reply_bytes,
            commands.collect::<Vec<_>>().join(", ")
        ))
    }
}
