//! How a run of the bench ended.

/// What the caller learns; everything else is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchOutcome {
    /// Everything was measured; in a comparison no figure is worse.
    Measured,
    /// The comparison found these rows worse than those of the other build.
    Worse(Vec<String>),
}
