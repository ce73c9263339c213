//! Series that a service keeps itself: a recorder keeps every series that it has seen, and these come and go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Collect = dyn Fn(&mut String) + Send + Sync;

/// What is called for every metrics page. Clones are the same.
#[derive(Clone, Default)]
pub struct Collectors(Arc<Mutex<Vec<Box<Collect>>>>);

impl Collectors {
    pub(crate) fn add(&self, collect: impl Fn(&mut String) + Send + Sync + 'static) {
        self.lock().push(Box::new(collect));
    }

    pub(crate) fn append_to(&self, page: &mut String) {
        self.lock().iter().for_each(|collect| collect(page));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<Collect>>> {
        // A collector that panics leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
