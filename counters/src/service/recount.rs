//! Audits and recounts (N12).

use super::CounterService;
use super::append::STALE_TRIES;
use crate::audit::{Audit, Groups, begin, go_on};
use crate::names::{CounterName, NamespaceName};
use crate::recount::{Recount, Recounted, Recounts, recount};
use crate::refusal::Refusal;

/// An audit, and how far back its namespace keeps events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// The audit so far.
    pub audit: Audit,
    /// Events before this time may have been dropped, in Unix ms.
    pub kept_from_ms: u64,
}

impl CounterService {
    /// A page of an audit. `from`: where the previous page has ended. `groups` gets its adds (N20).
    pub async fn audit(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        from: Option<Audit>,
        groups: &mut Groups,
    ) -> Result<Audited, Refusal> {
        let open = self.directory.get(namespace).await?;
        open.check_has_events()?;
        let namespace = open.hash();
        let audit = match from {
            None => Audit { namespace, ..begin(&open.store, counter, groups).await? },
            Some(audit) if audit.namespace != namespace => return Err(other_namespace()),
            Some(audit) => go_on(&open.store, counter, audit, groups).await?,
        };
        Ok(Audited { audit, kept_from_ms: open.store.kept_from_ms() })
    }

    /// Replaces the count of a counter.
    ///
    /// # Errors
    /// As [`recount`]. [`Refusal::EventsDropped`]: the count would become the sum of the events, some of which may have been
    /// dropped, and `accepts_dropped_events` is false.
    pub async fn recount(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        request: &Recount,
        accepts_dropped_events: bool,
    ) -> Result<Recounted, Refusal> {
        let mut open = self.directory.get(namespace).await?;
        for _ in 0..STALE_TRIES {
            open.check_has_events()?;
            if request.audit.is_some_and(|audit| audit.namespace != open.hash()) {
                return Err(other_namespace());
            }
            let kept_from_ms = if accepts_dropped_events { 0 } else { open.store.kept_from_ms() };
            match recount(&open.store, counter, request, kept_from_ms).await {
                Err(Refusal::Stale) => open = self.directory.instead_of_the_same(&open).await?,
                answer => {
                    match &answer {
                        // The next rollup publishes the count, and decides what the counter accepts.
                        Ok(_) => open.touches.hurried.notify_one(),
                        // It counts a clear that was in the way.
                        Err(_) => open.touches.add(counter, true),
                    }
                    return answer;
                }
            }
        }
        Err(Refusal::Stale)
    }

    /// The latest recounts of a counter, in their order.
    pub async fn recounts(&self, namespace: &NamespaceName, counter: &CounterName) -> Result<Vec<Recounted>, Refusal> {
        let open = self.directory.get(namespace).await?;
        open.check_has_events()?;
        open.store.recounts(counter).await
    }
}

fn other_namespace() -> Refusal {
    Refusal::CounterChanged { why: "the audit is of a namespace that was deleted" }
}
