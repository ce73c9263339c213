//! What a dequeue's answer means for those who asked, and how a wait ends.

use super::{Ask, Asker, Asks, Group, PRUNE_MIN, Retry, Waiting, Who, group_of};
use crate::engine::granted::Granted;
use tallystone_model::store::Dequeued;
use tallystone_model::{Filter, Lease, Refusal};
use tokio::time::Instant;

/// Whether, and when, to ask again for one who was refused. A Work stream waits for the end of a pause, a caller hears
/// of it.
fn retry_after(refusal: &Refusal, who: &Who) -> Option<Retry> {
    match (refusal, who) {
        (Refusal::Unavailable { .. } | Refusal::IndexBuilding { .. }, _) => Some(Retry::Soon),
        (Refusal::DequeueBlocked { .. }, Who::Stream(_)) => Some(Retry::Paused),
        _ => None,
    }
}

impl Waiting {
    /// The store's answer to a dispatch. `grant` wraps leases, given whether they stay with a request id.
    pub(in crate::engine) fn settle(
        &mut self,
        asks: Asks,
        answer: Result<Dequeued, Refusal>,
        now: Instant,
        grant: impl Fn(Vec<Lease>, bool) -> Granted,
    ) -> Option<Retry> {
        match answer {
            Ok(answer) => self.settle_each(asks, answer, now, grant),
            Err(refusal) => self.settle_refused(asks, refusal, now),
        }
    }

    fn settle_each(
        &mut self,
        asks: Asks,
        answer: Dequeued,
        now: Instant,
        grant: impl Fn(Vec<Lease>, bool) -> Granted,
    ) -> Option<Retry> {
        self.away = None;
        let ready = usize::try_from(answer.outlook.ready).unwrap_or(usize::MAX);
        let answer_cut_short = answer.cut_short;
        let mut retry = None;
        let mut answers = answer.leases.into_iter();
        for Ask { asker, limit, filters, keyed } in asks.asks {
            // A store that answers too little is a defect that must not leave a caller hanging.
            let answer = answers.next().unwrap_or_else(|| Err(Refusal::Internal("a request went unanswered".into())));
            let group = self.settled(&filters);
            group.refused = None;
            match answer {
                Ok(leases) => {
                    // Short of its limit, a filtered request has found the last that pass, if the store looked to the
                    // end; without filters the store counts what is left. A repeated request id answers its old leases, whatever is runnable.
                    let dry = match filters.is_empty() || keyed || answer_cut_short {
                        true => leases.is_empty(),
                        false => leases.len() < limit,
                    };
                    group.more = if dry { 0 } else { ready };
                    self.deliver(asker, limit, leases, now, |leases| grant(leases, keyed));
                }
                Err(refusal) => match retry_after(&refusal, &asker.who) {
                    Some(when) => {
                        group.refused = Some(refusal.clone());
                        retry = if retry == Some(Retry::Soon) { retry } else { Some(when) };
                        self.hold(asker, limit, now, Some(refusal));
                    }
                    None => self.refuse(asker, refusal),
                },
            }
            self.forget_if_unused(&filters);
        }
        retry
    }

    /// The whole call was refused.
    fn settle_refused(&mut self, asks: Asks, refusal: Refusal, now: Instant) -> Option<Retry> {
        let mut retry = None;
        self.away = matches!(refusal, Refusal::Unavailable { .. }).then(|| refusal.clone());
        for Ask { asker, limit, filters, .. } in asks.asks {
            self.settled(&filters);
            match retry_after(&refusal, &asker.who) {
                Some(when) => {
                    retry = Some(when);
                    self.hold(asker, limit, now, Some(refusal.clone()));
                }
                None => self.refuse(asker, refusal.clone()),
            }
            self.forget_if_unused(&filters);
        }
        if matches!(refusal, Refusal::DequeueBlocked { .. } | Refusal::QueueNotFound { .. }) {
            // It would be the answer to everyone who waits.
            let waiting: Vec<Asker> = self.groups.values_mut().flat_map(|group| group.waiting.drain(..)).collect();
            self.held -= waiting.len();
            for asker in waiting {
                match retry_after(&refusal, &asker.who) {
                    Some(when) => {
                        retry = Some(when);
                        self.wait_on(asker);
                    }
                    None => self.refuse(asker, refusal.clone()),
                }
            }
            self.forget_unused();
        }
        retry
    }

    /// Leases, or none, for one who asked.
    fn deliver(
        &mut self,
        asker: Asker,
        limit: usize,
        leases: Vec<Lease>,
        now: Instant,
        grant: impl FnOnce(Vec<Lease>) -> Granted,
    ) {
        if leases.is_empty() {
            return self.hold(asker, limit, now, None);
        }
        match asker.who {
            // If the caller has gone the leases come back in the error and are released where it is dropped.
            Who::Caller(waiter) => drop(waiter.reply.send(Ok(grant(leases)))),
            Who::Stream(id) => {
                let place = self.place();
                let Some(stream) = self.streams.get_mut(&id) else { return drop(grant(leases)) };
                if stream.stopped {
                    return drop(grant(leases));
                }
                stream.credits += limit - leases.len().min(limit);
                let wait_on = stream.credits > 0 && !stream.queued;
                stream.event().leases = Some(grant(leases));
                self.touched.push(id);
                if wait_on {
                    self.wait_on(Asker { place, who: Who::Stream(id) });
                }
            }
        }
    }

    /// Nothing for one who asked: it waits on, if it may.
    fn hold(&mut self, asker: Asker, limit: usize, now: Instant, refusal: Option<Refusal>) {
        match asker.who {
            Who::Caller(waiter) if waiter.until <= now || self.stopping => {
                let answer = match refusal {
                    Some(refusal) => Err(refusal),
                    None => Ok(Granted::none()),
                };
                drop(waiter.reply.send(answer));
            }
            Who::Caller(_) => self.wait_on(asker),
            Who::Stream(id) => {
                let Some(stream) = self.streams.get_mut(&id) else { return };
                if stream.stopped {
                    return;
                }
                stream.credits += limit;
                if !stream.queued {
                    self.wait_on(asker);
                }
            }
        }
    }

    /// Puts an asker into the waiting list of its group, in its place.
    fn wait_on(&mut self, asker: Asker) {
        match &asker.who {
            Who::Caller(waiter) => {
                self.expire_at = Some(self.expire_at.map_or(waiter.until, |at| at.min(waiter.until)));
            }
            Who::Stream(id) => {
                let Some(stream) = self.streams.get_mut(id) else { return };
                stream.queued = true;
            }
        }
        let group = group_of(&mut self.groups, asker.filters(&self.streams));
        let at = group.waiting.partition_point(|other| other.place < asker.place);
        group.waiting.insert(at, asker);
        self.held += 1;
        if self.held >= self.prune_at {
            self.prune();
        }
    }

    fn refuse(&mut self, asker: Asker, refusal: Refusal) {
        match asker.who {
            Who::Caller(waiter) => drop(waiter.reply.send(Err(refusal))),
            Who::Stream(id) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.stopped = true;
                    stream.credits = 0;
                    stream.event().end = Some(refusal);
                    self.touched.push(id);
                }
            }
        }
    }

    /// When the first wait of a held caller ends; may be early, never late.
    pub(in crate::engine) fn expire_at(&self) -> Option<Instant> {
        self.expire_at
    }

    /// Answers the callers whose wait is over. An empty answer says that nothing was runnable; where the store could
    /// not be asked, the refusal says so instead.
    pub(in crate::engine) fn expire(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for group in self.groups.values_mut() {
            let refusal = group.refused.as_ref().or(self.away.as_ref());
            for asker in std::mem::take(&mut group.waiting) {
                match asker.who {
                    Who::Caller(waiter) if waiter.until <= now => {
                        self.held -= 1;
                        let answer = refusal.map_or_else(|| Ok(Granted::none()), |refusal| Err(refusal.clone()));
                        drop(waiter.reply.send(answer));
                        continue;
                    }
                    Who::Caller(ref waiter) => next = Some(next.map_or(waiter.until, |next| next.min(waiter.until))),
                    Who::Stream(_) => {}
                }
                group.waiting.push_back(asker);
            }
        }
        self.expire_at = next;
        self.forget_unused();
    }

    /// The server stops: whoever waits gets an empty answer, now and from here on.
    pub(in crate::engine) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        let waiting: Vec<Asker> = self.groups.values_mut().flat_map(|group| group.waiting.drain(..)).collect();
        self.held -= waiting.len();
        for asker in waiting {
            self.hold(asker, 0, now, None);
        }
    }

    /// Leaves out callers that have gone. Amortized: only when the number has doubled since.
    fn prune(&mut self) {
        let streams = &self.streams;
        let mut held = 0;
        for group in self.groups.values_mut() {
            group.waiting.retain(|asker| match &asker.who {
                Who::Caller(waiter) => !waiter.reply.is_closed(),
                Who::Stream(id) => streams.contains_key(id),
            });
            held += group.waiting.len();
        }
        self.held = held;
        self.prune_at = (2 * held).max(PRUNE_MIN);
    }

    /// The group of an ask that has come back.
    fn settled(&mut self, filters: &[Filter]) -> &mut Group {
        let group = self.groups.get_mut(filters).expect("a group stays while an ask of it is in flight");
        group.in_flight -= 1;
        group
    }

    fn forget_if_unused(&mut self, filters: &[Filter]) {
        if !filters.is_empty() && self.groups.get(filters).is_some_and(Group::is_unused) {
            self.groups.remove(filters);
        }
    }

    fn forget_unused(&mut self) {
        self.groups.retain(|filters, group| filters.is_empty() || !group.is_unused());
    }
}
