//! Why a command was not carried out.

use crate::context::Context;
use crate::value::Shared;
use std::borrow::Cow;
use std::sync::Arc;
use tallystone_compact::{Fetched, Need, Refusal};

/// Why a command was not carried out. It has changed nothing and replied nothing.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The number of arguments.
    Arity,
    /// The key holds a value of another type.
    WrongType,
    /// There is no such key.
    NoSet,
    /// The key exists.
    Busy,
    /// Pieces of its dump are still to come.
    Restoring,
    /// The set was left half-changed by a bug.
    Broken,
    /// Pages have to be read first.
    Unread(Box<Unread>),
    /// More pages than a transaction or a script may wait for.
    Cold,
    /// The set refuses.
    Refused(Refusal),
    /// Another reason, with its code.
    Text(Cow<'static, str>),
}

/// What has to be read.
pub(crate) struct Unread {
    pub(crate) shared: Arc<Shared>,
    /// In order of files and pages. Either each has an id, or none has.
    pub(crate) needs: Vec<Need>,
    /// What the cache has for the located ids that need no page.
    pub(crate) along: Fetched,
    /// The ids of the command, to locate them again.
    pub(crate) ids: Vec<u64>,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} reads of pages", self.needs.len())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl Stop {
    /// A reason that is fixed.
    pub(crate) const fn text(text: &'static str) -> Stop {
        Stop::Text(Cow::Borrowed(text))
    }

    /// `ERR` with a reason.
    pub(crate) fn invalid(reason: &str) -> Stop {
        Stop::Text(Cow::Owned(format!("ERR {reason}")))
    }

    /// Replies with the reason.
    #[cold]
    pub(crate) fn reply(&self, context: &Context<'_>) {
        let text = match self {
            Stop::Arity => return context.reply_arity(),
            Stop::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Stop::NoSet => "NOSET there is no counter set at this key",
            Stop::Busy => "BUSYKEY the key exists",
            Stop::Restoring => "RESTORING pieces of the dump of this counter set are missing (CT.RESTORE)",
            Stop::Broken => "ERR a bug has left this counter set half-changed; restart the server to load it again",
            Stop::Unread(_) | Stop::Cold => {
                "COLD the records are on disk, and more than 16 pages of them are not read while the server waits"
            }
            Stop::Refused(refusal) => return context.reply_error(&refusal.to_string()),
            Stop::Text(text) => text,
        };
        context.reply_error(text);
    }
}
