//! What a budget reports.

/// Why a take got nothing. It never takes a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// This process holds too little, and the next grant is being requested. If the service is unavailable, it stays so;
    /// [`last_error`](super::BudgetStats::last_error) says why.
    #[error("the next grant is under way")]
    NotGranted,
    /// The last answer of the service leaves less than this take needs. It is not final: other processes may give back, the limit may
    /// be raised. The budget requests the count again after [`retry_ms`](super::BudgetOptions::retry_ms), if takes continue.
    #[error("the budget is exhausted")]
    Exhausted,
    /// It must be 1 to [`grant_max`](super::BudgetOptions::grant_max).
    #[error("a take must be 1 to {grant_max} units")]
    Invalid {
        /// The bound.
        grant_max: i64,
    },
    /// The budget was closed.
    #[error("the budget is closed")]
    Closed,
}

/// Why a budget could not do something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// The limit or an option is out of its range.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// The service has not confirmed in time that it has the units back. The budget continues to return them until it is dropped; then
    /// they count as spent.
    #[error("{units} units are not returned yet: {what}")]
    NotReturned {
        /// How many, at least: a grant whose answer is missing may be among them.
        units: i64,
        /// What failed last.
        what: String,
    },
}

impl BudgetError {
    pub(super) fn invalid(what: impl Into<String>) -> BudgetError {
        BudgetError::Invalid { what: what.into() }
    }
}
