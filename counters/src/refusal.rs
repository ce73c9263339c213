//! Why a counter was not changed, or not read.

use tallystone_model::Applied;
use tallystone_serving::Overloaded;

/// All reasons of refusals, as [`Refusal::reason`] returns them.
pub(crate) const REASONS: [&str; 19] = [
    "INVALID_ARGUMENT",
    "NAMESPACE_NOT_FOUND",
    "COUNTER_NOT_FOUND",
    "COUNTER_CHANGED",
    "EVENTS_DROPPED",
    "POSITION_EXPIRED",
    "TOO_OLD",
    "TOO_EARLY",
    "OVERFLOW",
    "BOUND_REACHED",
    "TOKEN_CONFLICT",
    "TOKEN_EXPIRED",
    "NAMESPACE_CHANGED",
    "NOT_EXACT_YET",
    "OVERLOADED",
    "STORE_UNAVAILABLE",
    "DATA_LOSS",
    "CLOCK_SKEW",
    "INTERNAL",
];

/// One reason for each thing that a caller can do about it. Nothing has changed, except that it is unknown for
/// [`Refusal::Unavailable`] with [`Applied::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is malformed.
    #[error("{field}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The namespace does not exist.
    #[error("there is no namespace '{namespace}'")]
    NamespaceNotFound {
        /// Its name.
        namespace: String,
    },
    /// The counter has no count: nothing was added to it, or no rollup has counted it yet, or it was deleted (N12).
    #[error("'{counter}' has no count: nothing was added to it, no rollup has counted it yet, or it was deleted")]
    CounterNotFound {
        /// Its name.
        counter: String,
    },
    /// The audit is void, or the counter cannot be recounted at this moment; nothing has changed (N12).
    #[error("{why}, so nothing was changed")]
    CounterChanged {
        /// What has changed.
        why: &'static str,
    },
    /// Events of the count may be missing, so it is not replaced by their sum (N12).
    #[error(
        "events before {kept_from_ms} may have been dropped, so the count is not replaced by the sum of the others"
    )]
    EventsDropped {
        /// The namespace keeps events from this time on, in Unix ms.
        kept_from_ms: u64,
    },
    /// Crossings after the position are gone: a list keeps only its latest entries. Or its namespace was deleted (N16).
    #[error(
        "crossings after the position are no longer kept; begin with the oldest that are, or with those from now on"
    )]
    PositionExpired,
    /// The event's time is before the accept limit or sealed. The event is certainly not counted (N3, N6).
    #[error("the event is too old, so it is not counted")]
    TooOld,
    /// The event's time is too far ahead of the store's clock (N6).
    #[error("the event's time is too far ahead of the store's clock, so it is not counted")]
    TooEarly,
    /// The counter's range, or what may be pending in its shard, cannot hold the delta (N2).
    #[error("the count or the sum could exceed its range, so nothing is changed")]
    Overflow,
    /// The count would pass a bound of the add, so it is not counted (N18).
    #[error("the count is {count}, and the add would pass its bound, so it is not counted")]
    BoundReached {
        /// The count, exact at the time of the refusal.
        count: i64,
    },
    /// The token has counted with another change (N3), or another recount had it (N12).
    #[error("this token was already used for another change")]
    TokenConflict,
    /// Too old for its token to be looked up: it may have been counted by an earlier call (N3).
    #[error("the event is so old that its token is no longer known; an earlier call may have counted it")]
    TokenExpired,
    /// The namespace has changed: the caller reads it again and repeats the call.
    #[error("the namespace was changed during the call")]
    Stale,
    /// The count is not exact to the time that the read requires (N19).
    #[error("the count is not exact to the required time yet, only to {exact_to_ms}")]
    NotExactYet {
        /// To what time it is exact, in Unix ms; 0: no rollup has run yet.
        exact_to_ms: u64,
    },
    /// Too much waits for the store or for rollups already, or the counters have not all been read yet; nothing has changed (O8).
    #[error("too much is under way already, so nothing was changed; call again in {retry_after_ms} ms")]
    Overloaded {
        /// After which time there should be room for the call.
        retry_after_ms: u64,
    },
    /// The store does not reply.
    #[error("the store is unavailable: {why}")]
    Unavailable {
        /// Whether the change may have been made.
        applied: Applied,
        /// The reason.
        why: String,
    },
    /// The store is not what it was (X7): its data was deleted, replaced, or is older than it was.
    #[error("the store is not what it was: {why}")]
    DataLoss {
        /// What was noticed.
        why: String,
    },
    /// The clocks of the store and of the server differ by more than the bound; nothing has changed (X6).
    #[error("{}", tallystone_model::Refusal::ClockSkew { offset_ms: *offset_ms, skew_max_ms: *skew_max_ms })]
    ClockSkew {
        /// By how much the store's clock is ahead of the server's, at least; negative: behind.
        offset_ms: i64,
        /// The bound.
        skew_max_ms: u32,
    },
    /// A defect.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Refusal {
    /// Its name on the wire and in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::Invalid { .. } => "INVALID_ARGUMENT",
            Refusal::NamespaceNotFound { .. } => "NAMESPACE_NOT_FOUND",
            Refusal::CounterNotFound { .. } => "COUNTER_NOT_FOUND",
            Refusal::CounterChanged { .. } => "COUNTER_CHANGED",
            Refusal::EventsDropped { .. } => "EVENTS_DROPPED",
            Refusal::PositionExpired => "POSITION_EXPIRED",
            Refusal::TooOld => "TOO_OLD",
            Refusal::TooEarly => "TOO_EARLY",
            Refusal::Overflow => "OVERFLOW",
            Refusal::BoundReached { .. } => "BOUND_REACHED",
            Refusal::TokenConflict => "TOKEN_CONFLICT",
            Refusal::TokenExpired => "TOKEN_EXPIRED",
            Refusal::Stale => "NAMESPACE_CHANGED",
            Refusal::NotExactYet { .. } => "NOT_EXACT_YET",
            Refusal::Overloaded { .. } => "OVERLOADED",
            Refusal::Unavailable { .. } => "STORE_UNAVAILABLE",
            Refusal::DataLoss { .. } => "DATA_LOSS",
            Refusal::ClockSkew { .. } => "CLOCK_SKEW",
            Refusal::Internal(_) => "INTERNAL",
        }
    }

    /// The same refusal of a call of several steps, of which an earlier one has changed something.
    #[must_use]
    pub fn after_a_change(self) -> Refusal {
        match self {
            Refusal::Unavailable { why, .. } => Refusal::Unavailable { applied: Applied::Unknown, why },
            skew @ Refusal::ClockSkew { .. } => {
                Refusal::Unavailable { applied: Applied::Unknown, why: skew.to_string() }
            }
            other => other,
        }
    }

    /// The request is malformed.
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Refusal {
        Refusal::Invalid { field, why: why.into() }
    }
}

impl From<Refusal> for Result<(), Refusal> {
    fn from(refusal: Refusal) -> Result<(), Refusal> {
        Err(refusal)
    }
}

impl From<Refusal> for Result<bool, Refusal> {
    fn from(refusal: Refusal) -> Result<bool, Refusal> {
        Err(refusal)
    }
}

impl From<Overloaded> for Refusal {
    fn from(overloaded: Overloaded) -> Refusal {
        Refusal::Overloaded { retry_after_ms: overloaded.retry_after.as_millis() as u64 }
    }
}

impl From<tallystone_model::Refusal> for Refusal {
    fn from(refusal: tallystone_model::Refusal) -> Refusal {
        use tallystone_model::Refusal as Queue;
        match refusal {
            Queue::Invalid { field, why } => Refusal::Invalid { field, why },
            Queue::Unavailable { applied, why } => Refusal::Unavailable { applied, why },
            Queue::ClockSkew { offset_ms, skew_max_ms } => Refusal::ClockSkew { offset_ms, skew_max_ms },
            Queue::StoreFull { of } => Refusal::Unavailable { applied: Applied::No, why: format!("it is out of {of}") },
            Queue::DataLoss { why } => Refusal::DataLoss { why },
            other => Refusal::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_every_reason_is_in_the_list() {
        let (_, arms) = include_str!("refusal.rs").split_once("pub fn reason(&self)").unwrap();
        let (arms, _) = arms.split_once("\n    }\n").unwrap();
        let named: Vec<&str> = arms.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(named, REASONS);
    }
}
