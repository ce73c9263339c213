//! Which types the namespaces have: a BEST_EFFORT namespace ignores tokens, so a repeated push would count twice there.

use super::push_file::Push;
use super::service::Service;
use crate::counter::CounterType;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// For how long it is known that a namespace heeds tokens. Only a deletion changes that, and another process may have created the
/// namespace again.
const TYPE_KNOWN: Duration = Duration::from_secs(10);

/// The types of namespaces, and when each was read.
#[derive(Default)]
pub(super) struct Types(HashMap<String, (CounterType, Instant)>);

impl Types {
    /// Remembers what a read that began at this time has found.
    pub(super) fn set(&mut self, namespace: &str, counter_type: CounterType, at: Instant) {
        self.0.insert(namespace.to_owned(), (counter_type, at));
    }

    /// The type that was read last.
    pub(super) fn get(&self, namespace: &str) -> Option<CounterType> {
        self.0.get(namespace).map(|(counter_type, _)| *counter_type)
    }

    /// The next check reads the type again.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    /// Refuses a push whose namespace is BEST_EFFORT.
    ///
    /// # Errors
    /// That, or the service does not say which type the namespace has.
    pub(super) async fn check(&mut self, service: &impl Service, push: &Push) -> Result<(), String> {
        let namespace = &push.namespace;
        if self.0.get(namespace).is_none_or(|(_, at)| at.elapsed() >= TYPE_KNOWN) {
            let (at, counters) = (Instant::now(), push.items.iter().take(1).map(|item| item.counter.clone()).collect());
            let counted = service.get(namespace, counters).await.map_err(|error| format!("{namespace}: {error}"))?;
            let counted = counted.into_iter().next().ok_or("a count without a result")?;
            self.set(namespace, counted.map_err(|refused| format!("{namespace}: {refused}"))?.counter_type, at);
        }
        match self.get(namespace) {
            Some(CounterType::BestEffort) => {
                Err(format!("the namespace {namespace} is BEST_EFFORT: a push could count twice"))
            }
            _ => Ok(()),
        }
    }
}
