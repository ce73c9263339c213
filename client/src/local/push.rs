//! Pushes: what is not pushed becomes a file, the file is sent until each add has a definite answer, and the bases follow (L2).
//!
//! The order of the steps is what makes a crash harmless. For each of them:
//!
//! 1. The totals are read. A crash: nothing has happened.
//! 2. The cells are written to disk. From here on a loss of power leaves totals that are at least those of the push.
//! 3. The push is written to disk, under its name. A crash: the next process sends it. If this fails after the file may have got its name,
//!    the push is kept: it is written again unchanged, and sent only then.
//! 4. The adds are sent, in several calls at once. A crash: the next process sends those whose base was not set again, with the same token and
//!    time, and they count once.
//! 5. For each answer, the base of its slot is set to the number in the push; the slots need no order. A crash: the next process sets
//!    it again.
//! 6. The bases are written to disk. Before this, a loss of power could bring back a base without its push.
//! 7. The push is removed, and the removal is written to disk. Before this, a loss of power could bring the push back after the next
//!    one had moved the bases on.

use super::error::LocalError;
use super::folder::Folder;
use super::push_file::{Item, Push};
use super::push_write::{capture, remove, renewed, rest, set_aside, write};
use super::service::{CALL_MAX, Service};
use super::stats::Tally;
use super::types::Types;
use super::unresolved::Unresolved;
use crate::counter::{Added, IdempotencyToken, NewAdd};
use crate::error::Refused;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{JoinSet, spawn_blocking};

/// How often a round sends a push with a new time: after the second time the clock is probably wrong.
const SENT_PER_ROUND: usize = 2;
/// Calls of a push that are under way at once. Each of them waits for a write to the disk of the service.
const CALLS_MAX: usize = 8;

pub(super) struct Pusher<S> {
    folder: Arc<Folder>,
    service: Arc<S>,
    /// Pushes that have not ended, by namespace. Each namespace has at most one, here or in `unsent`. The files of these are on disk.
    pub(super) pushes: BTreeMap<String, Push>,
    /// Pushes whose files may have been renamed, perhaps not durably. They are kept here so that their slots are not freed: otherwise the
    /// next process would find a file whose counters are not those of the folder.
    unsent: BTreeMap<String, Push>,
    pub(super) types: Types,
}

/// What an add that did not count means.
enum Refusal {
    /// Certainly not counted, now or ever.
    TooOld,
    /// Sending it again does not help.
    Unresolved,
    /// The same bytes may have another answer later.
    Later,
}

/// What came of sending a push once.
#[derive(Default)]
struct Sent {
    too_old: usize,
    unresolved: Vec<Unresolved>,
    /// Why some adds have no definite answer.
    later: Option<String>,
}

fn classify(refused: &Refused) -> Refusal {
    match refused.reason.as_str() {
        "TOO_OLD" => Refusal::TooOld,
        "TOKEN_EXPIRED" | "TOKEN_CONFLICT" | "OVERFLOW" | "INVALID_ARGUMENT" => Refusal::Unresolved,
        _ => Refusal::Later,
    }
}

impl<S: Service> Pusher<S> {
    /// `pushes` are those of a process before this one.
    pub(super) fn new(folder: Arc<Folder>, service: Arc<S>, pushes: Vec<Push>) -> Self {
        let pushes = pushes.into_iter().map(|push| (push.namespace.clone(), push)).collect();
        Pusher { folder, service, pushes, unsent: BTreeMap::new(), types: Types::default() }
    }

    /// Pushes everything that was added before the call.
    ///
    /// # Errors
    /// Something is not pushed; the next round continues. The text says what failed first.
    pub(super) async fn round(&mut self) -> Result<(), String> {
        let (began, mut failed) = (Instant::now(), Vec::new());
        // A push of before holds back what was added since: a second round pushes it as soon as the first one has ended.
        let rounds = if self.pushes.is_empty() && self.unsent.is_empty() { 1 } else { 2 };
        for _ in 0..rounds {
            if failed.is_empty() {
                self.begin(&mut failed).await;
                self.send_all(&mut failed).await;
                self.end(&mut failed).await;
            }
        }
        let tally = &self.folder.tally;
        let result = failed.into_iter().next().map_or(Ok(()), Err);
        if result.is_err() {
            Tally::count(&tally.push_failures);
        }
        tally.latest(|latest| {
            if result.is_ok() {
                latest.pushed_at = began;
            }
            latest.push_error = result.clone().err();
        });
        result
    }

    /// Steps 1 to 3.
    async fn begin(&mut self, failed: &mut Vec<String>) {
        let (folder, held) = (self.folder.clone(), self.held());
        let Some(new) = blocking(failed, move || Ok(capture(&folder, &held))).await else { return };
        let mut begun: Vec<Push> = self.unsent.values().cloned().collect();
        for push in new {
            match self.types.check(&*self.service, &push).await {
                Ok(()) => begun.push(push),
                Err(error) => failed.push(error),
            }
        }
        self.write(failed, begun).await;
    }

    /// The namespaces with a push that has not ended.
    fn held(&self) -> Vec<String> {
        self.pushes.keys().chain(self.unsent.keys()).cloned().collect()
    }

    /// Steps 2 and 3.
    async fn write(&mut self, failed: &mut Vec<String>, pushes: Vec<Push>) {
        let folder = self.folder.clone();
        let Some(written) = blocking(failed, move || write(&folder, pushes)).await else { return };
        failed.extend(written.failed);
        for push in written.on_disk {
            self.unsent.remove(&push.namespace);
            self.pushes.insert(push.namespace.clone(), push);
        }
        for push in written.unsent {
            // If this is a renewed push, the push that it replaces has certainly not counted.
            self.pushes.remove(&push.namespace);
            self.unsent.insert(push.namespace.clone(), push);
        }
    }

    /// Steps 4 and 5.
    async fn send_all(&mut self, failed: &mut Vec<String>) {
        let namespaces: Vec<String> = self.pushes.keys().cloned().collect();
        for namespace in namespaces {
            for attempt in 1..=SENT_PER_ROUND {
                let Some(push) = self.pushes.get(&namespace).filter(|push| rest(&self.folder, push).next().is_some())
                else {
                    break;
                };
                // Also of a push that an earlier process has begun.
                if let Err(error) = self.types.check(&*self.service, push).await {
                    failed.push(error);
                    break;
                }
                let Sent { too_old, unresolved, later } = self.send(push).await;
                let is_late = later.is_some() || too_old > 0;
                if later.is_some() {
                    // Before a repetition the type is read again: only repetitions could count twice.
                    self.types.forget(&namespace);
                }
                if !unresolved.is_empty() {
                    let (folder, push) = (self.folder.clone(), push.clone());
                    if blocking(failed, move || set_aside(&folder, &push, &unresolved)).await.is_none() {
                        // They may have counted: with a new token they would count twice.
                        break;
                    }
                }
                // Only when each add is definite: one that may have counted must be sent as it was.
                if too_old > 0 && later.is_none() && attempt < SENT_PER_ROUND {
                    let (renewed, failures) = (renewed(&self.folder, push), failed.len());
                    self.write(failed, vec![renewed]).await;
                    if failed.len() > failures {
                        break;
                    }
                    self.folder.options.steps.reach("a push has a new time");
                    continue;
                }
                if is_late {
                    failed.push(
                        later.unwrap_or_else(|| {
                            format!("{too_old} adds to {namespace} are TOO_OLD: is the clock wrong?")
                        }),
                    );
                }
                break;
            }
        }
    }

    /// Sends what has no definite answer yet.
    async fn send(&self, push: &Push) -> Sent {
        let (steps, mut sent) = (&self.folder.options.steps, Sent::default());
        let rest: Vec<&Item> = rest(&self.folder, push).collect();
        let (mut unsent, mut calls, mut has_failed) = (rest.chunks(CALL_MAX).enumerate(), JoinSet::new(), false);
        loop {
            // A failed call: the service is unavailable, or refuses the namespace. Further calls would have the same answer.
            while !has_failed
                && calls.len() < CALLS_MAX
                && let Some((number, items)) = unsent.next()
            {
                let add = |item: &&Item| {
                    let token = IdempotencyToken::new(push.token.clone(), push.time_ms);
                    NewAdd::new(item.counter.clone(), item.delta).token(token)
                };
                let adds = items.iter().map(add).collect();
                steps.reach("adds are not sent");
                let (service, namespace) = (self.service.clone(), push.namespace.clone());
                calls.spawn(async move { (number, service.add(&namespace, adds).await) });
            }
            // Each call that is under way is waited for: only then it is certain which adds are not definite.
            let Some(called) = calls.join_next().await else { return sent };
            let (number, answer) = match called {
                Ok(called) => called,
                Err(ended) => {
                    if let Ok(panic) = ended.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                    has_failed = true;
                    sent.later = Some("the runtime is being shut down".to_owned());
                    continue;
                }
            };
            steps.reach("adds are answered");
            let results = match answer {
                Ok(results) => results,
                Err(error) => {
                    has_failed = true;
                    sent.later = Some(format!("{}: {error}", push.namespace));
                    continue;
                }
            };
            for (item, result) in rest[number * CALL_MAX..].iter().zip(results) {
                match result {
                    Ok(added) => self.count(push, item, &added),
                    Err(refused) => match classify(&refused) {
                        Refusal::TooOld => sent.too_old += 1,
                        Refusal::Unresolved => sent.unresolved.push(Unresolved::new(push, item, &refused.reason)),
                        Refusal::Later => sent.later = Some(format!("{}/{}: {refused}", push.namespace, item.counter)),
                    },
                }
            }
        }
    }

    fn count(&self, push: &Push, item: &Item, added: &Added) {
        let folder = &self.folder;
        let slot = folder.slots().get(&push.namespace).and_then(|slots| slots.get(&item.counter)).cloned();
        {
            let mut state = slot.as_ref().map(|slot| slot.state());
            let index = item.slot as usize;
            folder.cells.set_pushed_ms(index, push.time_ms.max(folder.cells.pushed_ms(index)));
            folder.cells.set_base(index, item.base);
            if let Some(state) = &mut state {
                state.count(push.time_ms, item.delta, self.types.get(&push.namespace));
            }
        }
        Tally::count(&folder.tally.pushed_adds);
        if added.duplicate {
            Tally::count(&folder.tally.duplicates);
        }
        folder.options.steps.reach("a base has moved");
    }

    /// Steps 6 and 7.
    async fn end(&mut self, failed: &mut Vec<String>) {
        let has_ended = |push: &&Push| rest(&self.folder, push).next().is_none();
        let ended: Vec<String> = self.pushes.values().filter(has_ended).map(|push| push.namespace.clone()).collect();
        let folder = self.folder.clone();
        let removed = blocking(failed, move || {
            remove(&folder, &ended)?;
            Ok(ended)
        });
        for namespace in removed.await.into_iter().flatten() {
            self.pushes.remove(&namespace);
            Tally::count(&self.folder.tally.pushes);
        }
        let (folder, held) = (self.folder.clone(), self.held());
        blocking(failed, move || folder.free_unused(|namespace| held.iter().any(|held| held == namespace))).await;
    }
}

/// Calls the file system on a thread that may wait for it.
async fn blocking<T: Send + 'static>(
    failed: &mut Vec<String>,
    work: impl FnOnce() -> Result<T, LocalError> + Send + 'static,
) -> Option<T> {
    match spawn_blocking(work).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            failed.push(error.to_string());
            None
        }
        Err(panicked) => {
            if let Ok(panic) = panicked.try_into_panic() {
                std::panic::resume_unwind(panic);
            }
            // The runtime ends.
            failed.push("the runtime is being shut down".to_owned());
            None
        }
    }
}
