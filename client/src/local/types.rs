//! Which types the namespaces have: a BEST_EFFORT namespace ignores tokens, so a repeated push would count twice there.

use super::push_file::Push;
use super::service::Service;
use crate::counter::CounterType;
use crate::error::Error;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// For how long it is known that a namespace heeds tokens. Only a deletion changes that, and another process may have created the
/// namespace again.
const TYPE_KNOWN: Duration = Duration::from_secs(10);

/// The types of namespaces, and when each was read.
#[derive(Default)]
pub(super) struct Types {
    known: HashMap<String, (CounterType, Instant)>,
    /// When the service did not answer.
    unavailable_at: Option<Instant>,
}

impl Types {
    /// Remembers what a read that began at this time has found.
    pub(super) fn set(&mut self, namespace: &str, counter_type: CounterType, at: Instant) {
        self.known.insert(namespace.to_owned(), (counter_type, at));
    }

    /// The type that was read last.
    pub(super) fn get(&self, namespace: &str) -> Option<CounterType> {
        self.known.get(namespace).map(|(counter_type, _)| *counter_type)
    }

    /// The next check reads the type again.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.known.remove(namespace);
    }

    /// Refuses a push whose namespace is BEST_EFFORT.
    ///
    /// # Errors
    /// That, or the service does not say which type the namespace has.
    pub(super) async fn check(&mut self, service: &impl Service, push: &Push) -> Result<(), String> {
        let namespace = &push.namespace;
        if self.known.get(namespace).is_none_or(|(_, at)| at.elapsed() >= TYPE_KNOWN) {
            self.read(service, push).await.map_err(|error| format!("{namespace}: {error}"))?;
        }
        self.refuse_best_effort(namespace)
    }

    /// Like [`check`](Types::check), but a type that was read once stays known, and a push whose type cannot be read is not refused: it
    /// goes to a topic, and need not wait for the service.
    ///
    /// # Errors
    /// As [`check`](Types::check).
    pub(super) async fn check_if_available(&mut self, service: &impl Service, push: &Push) -> Result<(), String> {
        let may_read = self.unavailable_at.is_none_or(|at| at.elapsed() >= TYPE_KNOWN);
        if !self.known.contains_key(&push.namespace) && may_read {
            match self.read(service, push).await {
                Ok(()) => {}
                Err(Error::Refused(refused)) if refused.reason == "NAMESPACE_NOT_FOUND" => {
                    return Err(format!("{}: {refused}", push.namespace));
                }
                // The other namespaces do not wait for the service either, for `TYPE_KNOWN`.
                Err(_) => self.unavailable_at = Some(Instant::now()),
            }
        }
        self.refuse_best_effort(&push.namespace)
    }

    /// Reads the type of a push's namespace.
    async fn read(&mut self, service: &impl Service, push: &Push) -> Result<(), Error> {
        let (at, namespace) = (Instant::now(), &push.namespace);
        let counters = push.items.iter().take(1).map(|item| item.counter.clone()).collect();
        let counted = service.get(namespace, counters).await?.into_iter().next();
        let counted = counted.ok_or_else(|| Error::Protocol("a count without a result".to_owned()))?;
        self.set(namespace, counted?.counter_type, at);
        Ok(())
    }

    fn refuse_best_effort(&self, namespace: &str) -> Result<(), String> {
        match self.get(namespace) {
            Some(CounterType::BestEffort) => {
                Err(format!("the namespace {namespace} is BEST_EFFORT: a push could count twice"))
            }
            _ => Ok(()),
        }
    }
}
