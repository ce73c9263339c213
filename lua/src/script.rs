//! The scripts by name, each assembled once.

use crate::{constants, loader};

macro_rules! parts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, "/", $name, ".lua")))),*]
    };
}

/// Defines an enum of scripts: each is one file of `$folder`, assembled with `$parts` after `$prelude`.
macro_rules! scripts {
    (
        $(#[$of:meta])* $Script:ident in $folder:literal, from $parts:expr, behind $prelude:expr;
        $($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?
    ) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Script { $($(#[$doc])* $variant),* }

        impl $Script {
            /// All of them.
            pub const ALL: &[$Script] = &[$($Script::$variant),*];

            /// The verb, which is the name of its file.
            pub fn name(self) -> &'static str {
                match self { $($Script::$variant => $name),* }
            }

            fn file(self) -> &'static str {
                match self {
                    $($Script::$variant => include_str!(concat!("../", $folder, "/", $name, ".lua"))),*
                }
            }

            fn loaded(self) -> &'static crate::script::Loaded {
                static LOADED: std::sync::LazyLock<Vec<crate::script::Loaded>> = std::sync::LazyLock::new(|| {
                    let prelude = $prelude;
                    let load = |script: &$Script| crate::script::load(script.name(), script.file(), &prelude, $parts);
                    $Script::ALL.iter().map(load).collect()
                });
                &LOADED[self as usize]
            }

            /// The assembled text.
            pub fn source(self) -> &'static str {
                &self.loaded().source
            }

            /// The hash for EVALSHA.
            pub fn sha1(self) -> &'static str {
                &self.loaded().sha1
            }
        }
    };
}
pub(crate) use {parts, scripts};

/// An assembled script.
pub(crate) struct Loaded {
    pub(crate) source: String,
    pub(crate) sha1: String,
}

pub(crate) fn load(name: &str, file: &'static str, prelude: &str, parts: &[(&str, &'static str)]) -> Loaded {
    let find = |wanted: &str| parts.iter().chain(SHARED_PARTS).find(|(part, _)| *part == wanted).map(|(_, text)| *text);
    let source = loader::assemble(name, file, prelude, &find).expect("a test assembles the embedded scripts");
    let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
    Loaded { source, sha1 }
}

/// What the scripts of the queue and those of the counters share.
const SHARED_PARTS: &[(&str, &str)] = parts!["lib": "clock"];

const PARTS: &[(&str, &str)] = parts!["lib":
    "shard", "timeline", "record", "event", "exclusive", "errored", "attempts", "index", "move", "due", "requests", "ids", "page",
    "scan",
    "build_index/scan", "build_index/tuple", "build_index/walk",
    "change/cancel", "change/redrive", "change/revoke", "change/selection", "change/update",
    "check/index", "check/key", "check/message", "check/walk", "complete/batch",
    "dequeue/filtered", "dequeue/leases", "dequeue/ready", "dequeue/reply", "dequeue/requests", "dequeue/ticket",
    "enqueue/class", "enqueue/coalesce", "enqueue/fresh", "enqueue/kept", "enqueue/keys", "enqueue/known", "sweep/errored",
];

scripts! {
    /// One script: one verb of the queue's store.
    Script in "scripts", from PARTS, behind constants::prelude();
    /// Creates a queue shard.
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
    /// Q25.
    ChangeMessages = "change_messages",
    /// Q7.
    GetMessages = "get_messages",
    /// Q7.
    ListMessages = "list_messages",
    /// Q7.
    Explain = "explain",
    /// Q9.
    Depth = "depth",
    /// O1.
    Ages = "ages",
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
    /// Which server does a background job.
    AcquireLeaderLease = "acquire_leader_lease",
}

/// A script fits on about a screen; its parts are named includes.
#[cfg(test)]
pub(crate) const SCREEN_LINES: usize = 85;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_assembles_and_says_what_it_is() {
        for script in Script::ALL {
            assert!(script.source().starts_with("#!lua"), "{}", script.name());
            assert!(script.file().contains(&format!("\n-- {}: ", script.name())), "{} has no header", script.name());
            assert_eq!(script.sha1().len(), 40);
            let lines = script.file().lines().count();
            assert!(lines <= SCREEN_LINES, "{} has {lines} lines", script.name());
        }
    }
}
