//! Points of the program at which a test ends or stops the process.

use std::fmt;
use std::sync::Arc;

/// Calls a function with the name of each step that matters after a crash; without a function it does nothing.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<dyn Fn(&'static str) + Send + Sync>>);

impl Steps {
    /// Calls this function.
    pub fn observed_by(observer: impl Fn(&'static str) + Send + Sync + 'static) -> Steps {
        Steps(Some(Arc::new(observer)))
    }

    pub(crate) fn reach(&self, step: &'static str) {
        if let Some(observer) = &self.0 {
            observer(step);
        }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Steps(observed)" } else { "Steps" })
    }
}
