//! The scripts of the view counter and their keys. Views are spread over partitions; the keys of one share a hash tag.

use crate::answer::answers;
use crate::script::scripts;
use std::fmt::Write;

/// The names of the keys of a partition, in the order of KEYS. Lua knows them as `K_LOG`, `K_STATE`, `K_DELTAS` and
/// `K_LATE`.
pub const NAMES: [&str; 4] = [
    "log",   // stream: views that were accepted, many in each entry
    "state", // hash: holder, expires_ms, epoch of the owner; full: the epoch if the owner has no memory for more pairs; position
    // in the log; settled and late_settled: up to where deltas and late deltas have their answers
    "deltas", // stream: what to add to which counters
    "late",   // stream of at most one record: deltas whose first token came too late
];
/// Hash: the secret of the pairs, the number of partitions, and the id of the log in tokens.
pub const LAYOUT: &str = "tc:views:layout";

answers! {
    /// The code of a script's reply.
    ViewAnswer {
        /// Done.
        Ok = "OK",
        /// Another process has the lease of the partition.
        Held = "HELD",
        /// The caller does not own the partition any more.
        Fenced = "FENCED",
        /// The owner has no memory for more pairs.
        Full = "FULL",
    }
}

scripts! {
    /// A script of the view counter.
    ViewScript in "views", from &[], behind prelude();
    /// V1.
    Append = "append",
    /// V3.
    Advance = "advance",
    /// V3.
    Acquire = "acquire",
    /// V3.
    Commit = "commit",
    /// V3.
    Settle = "settle",
}

fn prelude() -> String {
    let mut text = String::new();
    for (position, name) in NAMES.iter().enumerate() {
        let _ = writeln!(text, "local K_{} = KEYS[{}]", name.to_uppercase(), position + 1);
    }
    for (answer, name) in ViewAnswer::ALL {
        let _ = writeln!(text, "local {name} = {}", *answer as u8);
    }
    text
}

/// A key of a partition.
pub fn key(partition: u16, name: &str) -> String {
    format!("tc:views:{{{partition}}}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_assembles_and_says_what_it_is() {
        for script in ViewScript::ALL {
            assert!(script.source().starts_with("#!lua"), "{}", script.name());
            assert!(script.file().contains(&format!("\n-- {}: ", script.name())), "{} has no header", script.name());
            let lines = script.file().lines().count();
            assert!(lines <= crate::script::SCREEN_LINES, "{} has {lines} lines", script.name());
        }
        for (number, (answer, _)) in ViewAnswer::ALL.iter().enumerate() {
            assert_eq!(ViewAnswer::from_code(number as i64), Some(*answer));
        }
    }

    #[test]
    fn no_key_is_one_of_a_counter() {
        let keys = NAMES.map(|name| key(3, name));
        assert!(keys.iter().all(|key| key.starts_with("tc:views:{3}:")), "{keys:?}");
        assert!(!crate::counter::CounterShardKeys::new("views", 3).key("state").starts_with("tc:views"));
    }
}
