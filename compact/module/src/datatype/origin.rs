//! Where the engine's commands on a whole value, `COPY` and `RESTORE`, come from. Their callbacks get no client, so the state of the engine
//! has to say it.

use crate::background;
use crate::context::{Level, log};
use crate::raw::{self, api};
use std::ptr::null_mut;

/// Where a command comes from, and so what its failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client of a primary, which gets an error. Or a replica loads what its primary sends, and serves meanwhile.
    Client,
    /// The primary. It has accepted the command, so the key must not be missing here.
    Primary,
    /// The primary, or a client that may write to this replica: such a replica can differ from its primary.
    PrimaryOrClient,
    /// The engine loads a snapshot or its log.
    Loading,
}

impl Origin {
    /// That of the command that runs.
    pub(super) fn now() -> Origin {
        // SAFETY: without a context, the function gives the flags of the engine alone.
        let flags = unsafe { (api().get_context_flags)(null_mut()) };
        if flags & raw::FLAG_LOADING != 0 {
            Origin::Loading
        } else if flags & raw::FLAG_REPLICA == 0 || background::is_loading() {
            Origin::Client
        } else if flags & raw::FLAG_READONLY != 0 {
            Origin::Primary
        } else {
            Origin::PrimaryOrClient
        }
    }

    /// Whether a primary has accepted the command, perhaps.
    pub(super) fn is_replicated(self) -> bool {
        matches!(self, Origin::Primary | Origin::PrimaryOrClient)
    }

    /// Ends the process. The engine ignores an error of a command that it has replicated or logged: it would go on without the key.
    pub(super) fn end_without_key(command: &str) -> ! {
        let text =
            format!("a {command} that was accepted before has failed: the engine ends, so that no key is missing");
        log(Level::Warning, &text);
        std::process::exit(1);
    }
}
