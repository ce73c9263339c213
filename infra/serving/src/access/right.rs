//! The rights.

use std::fmt;
use std::str::FromStr;

/// What a principal may do on the queues or namespaces that a rule names. `table` has the right that each RPC needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Enqueue messages, and cancel those that are not running.
    Produce,
    /// Lease messages, and end the leases.
    Consume,
    /// Read queues, messages and history, without payloads and fencing tokens.
    Read,
    /// Payloads in what may be read.
    Payload,
    /// Create queues.
    Create,
    /// Change the configuration of queues.
    Configure,
    /// Change messages that others have enqueued or lease; check queues; repair history.
    Operate,
    /// Remove queues and all their messages.
    Purge,
    /// Add to counters and clear them.
    Count,
    /// Read counters.
    CountRead,
    /// Create, change and delete namespaces; delete counters.
    CountAdmin,
    /// Read `/metrics`; its rule must have the pattern `*`.
    Metrics,
    /// All rights.
    Admin,
}

impl Right {
    /// All rights, in the order of the documentation.
    pub const ALL: [Right; 13] = [
        Right::Produce,
        Right::Consume,
        Right::Read,
        Right::Payload,
        Right::Create,
        Right::Configure,
        Right::Operate,
        Right::Purge,
        Right::Count,
        Right::CountRead,
        Right::CountAdmin,
        Right::Metrics,
        Right::Admin,
    ];

    /// Whether it is a right of operators: the audit log always records calls that need it.
    pub(super) fn is_for_operators(self) -> bool {
        match self {
            Right::Create | Right::Configure | Right::Operate | Right::Purge | Right::CountAdmin | Right::Admin => true,
            Right::Produce | Right::Consume | Right::Read | Right::Payload => false,
            Right::Count | Right::CountRead | Right::Metrics => false,
        }
    }

    /// The name in rules, such as `count-read`.
    pub fn name(self) -> &'static str {
        match self {
            Right::Produce => "produce",
            Right::Consume => "consume",
            Right::Read => "read",
            Right::Payload => "payload",
            Right::Create => "create",
            Right::Configure => "configure",
            Right::Operate => "operate",
            Right::Purge => "purge",
            Right::Count => "count",
            Right::CountRead => "count-read",
            Right::CountAdmin => "count-admin",
            Right::Metrics => "metrics",
            Right::Admin => "admin",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = String;

    fn from_str(name: &str) -> Result<Right, String> {
        Right::ALL.into_iter().find(|right| right.name() == name).ok_or_else(|| {
            let all: Vec<&str> = Right::ALL.into_iter().map(Right::name).collect();
            format!("{name:?} is no right; the rights are {}", all.join(", "))
        })
    }
}
