//! What a budget has done.

/// What a budget has done since it was opened, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStats {
    /// Taken by this process.
    pub taken: u64,
    /// Granted to this process, and not taken.
    pub left: i64,
    /// Grants that the service has confirmed.
    pub grants: u64,
    /// Given back, and confirmed by the service.
    pub returned: u64,
    /// Neither taken nor given back, because it is unknown whether the service has counted them, or because a clear of the counter has
    /// removed them. In the first case they count as spent.
    pub written_off: u64,
    /// The count of the service, as last seen: what is granted to all processes and not given back. `None`: not seen yet.
    pub count: Option<i64>,
    /// What failed last; `None`: the last call succeeded.
    pub last_error: Option<String>,
}
