//! Points at which a test may end the process: of the work on a partition, and of accepting views.

use std::sync::Arc;

/// Is called with the name of each step that matters after a crash.
pub type StepObserver = Arc<dyn Fn(&'static str) + Send + Sync>;

/// One that does nothing.
pub(crate) fn unobserved() -> StepObserver {
    Arc::new(|_| {})
}
