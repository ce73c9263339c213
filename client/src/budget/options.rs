//! The options of a budget, and its bounds.

use super::error::BudgetError;
use std::time::Duration;

/// The bounds of a limit: what a count of the service may reach.
const LIMIT_MAX: i64 = 1 << 62;
/// The bound of [`BudgetOptions::grant_max`]. Sums of some grants are far from the end of an i64.
const GRANT_MAX: i64 = 1 << 40;

/// How a budget requests grants. Times are milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BudgetOptions {
    /// A grant is large enough for what the process takes in this time; default 1,000, at least 1. A kill of the process loses about
    /// this much.
    pub grant_interval_ms: u64,
    /// The most units of one grant, and of one take; default 10,000, 1 to 2^40.
    pub grant_max: i64,
    /// How long a process remembers that the budget is exhausted before it reads the count again; default 1,000, at least 1.
    pub retry_ms: u64,
    /// A process that takes nothing for this time gives back what it holds; default 60,000, at least 1.
    pub idle_ms: u64,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        BudgetOptions { grant_interval_ms: 1_000, grant_max: 10_000, retry_ms: 1_000, idle_ms: 60_000 }
    }
}

impl BudgetOptions {
    pub(super) fn check(&self) -> Result<(), BudgetError> {
        if !(1..=GRANT_MAX).contains(&self.grant_max) {
            return Err(BudgetError::invalid(format!("grant_max is {}, not 1 to {GRANT_MAX}", self.grant_max)));
        }
        if [self.grant_interval_ms, self.retry_ms, self.idle_ms].contains(&0) {
            return Err(BudgetError::invalid("grant_interval_ms, retry_ms and idle_ms are at least 1"));
        }
        Ok(())
    }

    pub(super) fn retry(&self) -> Duration {
        Duration::from_millis(self.retry_ms)
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

/// Refuses a limit that no count can be held against.
pub(super) fn check_limit(limit: i64) -> Result<(), BudgetError> {
    if (0..=LIMIT_MAX).contains(&limit) {
        return Ok(());
    }
    Err(BudgetError::invalid(format!("the limit is {limit}, not 0 to {LIMIT_MAX}")))
}
