//! The invariants of one queue shard, by number. `check` verifies them on a live store, and the property tests after every
//! step; error reports name them.

/// One invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invariant {
    /// "I1" and so on; stable.
    pub id: &'static str,
    /// The sentence that must be true.
    pub what: &'static str,
}

/// All of them.
pub const INVARIANTS: &[Invariant] = &[
    Invariant { id: "I1", what: "each message is in exactly one place, the one its state names" },
    Invariant { id: "I2", what: "the count of each state equals the number of messages in it" },
    Invariant { id: "I3", what: "at most one message of an exclusivity value is running" },
    Invariant { id: "I4", what: "every lock has its running message, and every running message its lock" },
    Invariant { id: "I5", what: "ready holds exactly the most urgent pending message of each free value" },
    Invariant {
        id: "I6",
        what: "each filter index holds exactly the pending messages that carry its keys, and counts all states",
    },
    Invariant { id: "I7", what: "every record can be read, and every place leads to a record" },
    Invariant {
        id: "I8",
        what: "the running set is ordered by the lease expiry of its messages, the invisible set by due time",
    },
    Invariant { id: "I9", what: "the errored set holds errored messages, each with the time of its end" },
];

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's id.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}
