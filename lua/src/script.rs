//! The scripts by name, assembled once.

use crate::{constants, loader};
use std::sync::LazyLock;

macro_rules! parts {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../lib/", $name, ".lua")))),*] };
}

const PARTS: &[(&str, &str)] = parts!["shard", "record", "event", "exclusive", "index", "move", "due", "requests"];

macro_rules! scripts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// One script: one verb of the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Script { $($(#[$doc])* $variant),* }

        impl Script {
            /// All of them.
            pub const ALL: &[Script] = &[$(Script::$variant),*];

            /// The verb: the file is `scripts/<name>.lua`.
            pub fn name(self) -> &'static str {
                match self { $(Script::$variant => $name),* }
            }

            fn file(self) -> &'static str {
                match self { $(Script::$variant => include_str!(concat!("../scripts/", $name, ".lua"))),* }
            }
        }
    };
}

scripts! {
    /// Makes a queue shard.
    CreateQueue = "create_queue",
    /// Replaces the configuration.
    UpdateQueue = "update_queue",
    /// Removes an empty queue shard.
    DeleteQueue = "delete_queue",
    /// Q3, Q10, Q12.
    Enqueue = "enqueue",
    /// Q4, Q8, Q10.
    Dequeue = "dequeue",
    /// Q5, Q10.
    Complete = "complete",
    /// Q11.
    ExtendLease = "extend_lease",
    /// Q5.
    Release = "release",
    /// Q5.
    Cancel = "cancel",
    /// Q5.
    Redrive = "redrive",
    /// Q7.
    UpdateMessage = "update_message",
    /// Q7.
    GetMessages = "get_messages",
    /// Q7.
    ListMessages = "list_messages",
    /// Q7.
    Explain = "explain",
    /// Q9.
    Depth = "depth",
    /// Q8, Q9.
    BuildIndex = "build_index",
    /// Q5.
    Sweep = "sweep",
    /// Q7.
    Purge = "purge",
    /// The scrubber.
    Check = "check",
    /// Q19.
    AckOutbox = "ack_outbox",
    /// Who does a background job.
    TakeTurn = "take_turn",
}

struct Loaded {
    source: String,
    sha1: String,
}

static LOADED: LazyLock<Vec<Loaded>> = LazyLock::new(|| {
    let prelude = constants::prelude();
    let find = |name: &str| PARTS.iter().find(|(part, _)| *part == name).map(|(_, text)| *text);
    let load = |script: &Script| {
        let source = loader::assemble(script.name(), script.file(), &prelude, &find)
            .expect("the embedded scripts are put together by a test");
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Loaded { source, sha1 }
    };
    Script::ALL.iter().map(load).collect()
});

impl Script {
    /// The assembled text.
    pub fn source(self) -> &'static str {
        &LOADED[self as usize].source
    }

    /// What EVALSHA wants.
    pub fn sha1(self) -> &'static str {
        &LOADED[self as usize].sha1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_assembles_and_says_what_it_is() {
        for script in Script::ALL {
            assert!(script.source().starts_with("#!lua"), "{}", script.name());
            assert!(script.file().contains(&format!("\n-- {}: ", script.name())), "{} has no header", script.name());
            assert_eq!(script.sha1().len(), 40);
        }
    }
}
