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
//!
//! With a log, a push requests the mark of its namespace before step 3, and is written to the log as a whole in step 4, where its token
//! becomes the mark. A crash: the next process reads the mark, and knows whether the push is there.

use super::error::LocalError;
use super::folder::Folder;
use super::push_file::{Item, Logged, Push};
use super::push_log::{PushLog, Put};
use super::push_write::{capture, remove, renewed, rest, set_aside, write};
use super::service::{CALL_MAX, Service};
use super::slot::{Due, unix_ms};
use super::stats::Tally;
use super::types::Types;
use super::unresolved::Unresolved;
use crate::counter::{IdempotencyToken, NewAdd};
use crate::error::Refused;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::{JoinSet, spawn_blocking};

/// How often a round sends a push with a new time: after the second time the clock is probably wrong.
const SENT_PER_ROUND: usize = 2;
/// Calls of a push that are under way at once. Each of them waits for a write to the disk of the service.
const CALLS_MAX: usize = 8;

pub(super) struct Pusher<S> {
    folder: Arc<Folder>,
    service: Arc<S>,
    /// New pushes are written here, if it is there.
    log: Option<Log>,
    /// Pushes that have not ended, by namespace. Each namespace has at most one, here or in `unsent`. The files of these are on disk.
    pub(super) pushes: BTreeMap<String, Push>,
    /// Pushes whose files may have been renamed, perhaps not durably. They are kept here so that their slots are not freed: otherwise the
    /// next process would find a file whose counters are not those of the folder.
    unsent: BTreeMap<String, Push>,
    pub(super) types: Types,
}

/// A log, and what it has said of itself.
struct Log {
    calls: Arc<Mutex<Box<dyn PushLog>>>,
    name: String,
    delay: Duration,
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
    pub(super) fn new(folder: Arc<Folder>, service: Arc<S>, log: Option<Box<dyn PushLog>>, pushes: Vec<Push>) -> Self {
        let log = log.map(|log| {
            let (name, delay) = (log.name().to_owned(), log.delay());
            Log { calls: Arc::new(Mutex::new(log)), name, delay }
        });
        let pushes = pushes.into_iter().map(|push| (push.namespace.clone(), push)).collect();
        Pusher { folder, service, log, pushes, unsent: BTreeMap::new(), types: Types::default() }
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
        let Some(new) = blocking(failed, move || Ok::<_, LocalError>(capture(&folder, &held))).await else { return };
        let mut begun: Vec<Push> = self.unsent.values().cloned().collect();
        for mut push in new {
            let checked = match &self.log {
                None => self.types.check(&*self.service, &push).await,
                Some(_) => self.types.check_if_available(&*self.service, &push).await,
            };
            if let Err(error) = checked {
                failed.push(error);
                continue;
            }
            if let Some(log) = self.log.as_ref().map(|log| log.name.clone()) {
                let namespace = push.namespace.clone();
                // The log answers for all namespaces, or for none.
                let Some(mark_before) = self.call_log(failed, move |log| log.mark(&namespace)).await else { break };
                push.logged = Some(Logged { log, mark_before });
            }
            begun.push(push);
        }
        self.write(failed, begun).await;
    }

    /// How long a push takes from the log to its count; `None`: pushes are calls.
    pub(super) fn delay(&self) -> Option<Duration> {
        self.log.as_ref().map(|log| log.delay)
    }

    /// Calls the log, and waits for it.
    async fn call_log<T: Send + 'static>(
        &self,
        failed: &mut Vec<String>,
        work: impl FnOnce(&mut dyn PushLog) -> Result<T, String> + Send + 'static,
    ) -> Option<T> {
        let calls = self.log.as_ref()?.calls.clone();
        // The folder stays locked for as long as the call may write.
        let folder = self.folder.clone();
        blocking(failed, move || {
            let _folder = folder;
            work(&mut **calls.lock().unwrap_or_else(PoisonError::into_inner))
        })
        .await
    }

    /// Steps 4 and 5 of a push to the log. Returns whether the log has answered.
    async fn put(&self, failed: &mut Vec<String>, push: &Push) -> bool {
        let rest = Push { items: rest(&self.folder, push).cloned().collect(), ..push.clone() };
        let (put, delay) =
            (self.call_log(failed, move |log| log.put(&rest).map(|put| (put, rest))).await, self.delay());
        let (Some((put, rest)), Some(delay)) = (put, delay) else { return false };
        self.folder.options.steps.reach("the log has answered");
        if put == Put::Forgotten {
            let unresolved: Vec<_> =
                rest.items.iter().map(|item| Unresolved::new(push, item, "PUSH_FORGOTTEN")).collect();
            let (folder, push) = (self.folder.clone(), push.clone());
            blocking(failed, move || set_aside(&folder, &push, &unresolved)).await;
            return true;
        }
        let due = Due::after(delay, &self.folder.options);
        for item in &rest.items {
            self.count(push, item, put == Put::Found, Some(due));
        }
        true
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
        let mut has_log = true;
        for namespace in namespaces {
            let logged = self.pushes.get(&namespace).filter(|push| push.logged.is_some());
            if let Some(push) = logged.filter(|push| rest(&self.folder, push).next().is_some()) {
                has_log = has_log && self.put(failed, push).await;
                continue;
            }
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
                    Ok(added) => self.count(push, item, added.duplicate, None),
                    Err(refused) => match classify(&refused) {
                        Refusal::TooOld => sent.too_old += 1,
                        Refusal::Unresolved => sent.unresolved.push(Unresolved::new(push, item, &refused.reason)),
                        Refusal::Later => sent.later = Some(format!("{}/{}: {refused}", push.namespace, item.counter)),
                    },
                }
            }
        }
    }

    /// `due`: when it counts, if it is in the log.
    fn count(&self, push: &Push, item: &Item, is_duplicate: bool, due: Option<Due>) {
        let folder = &self.folder;
        let slot = folder.slots().get(&push.namespace).and_then(|slots| slots.get(&item.counter)).cloned();
        {
            let mut state = slot.as_ref().map(|slot| slot.state());
            let index = item.slot as usize;
            let latest_ms = due.map_or(push.time_ms, |due| due.time_ms);
            folder.cells.set_pushed_ms(index, latest_ms.max(folder.cells.pushed_ms(index)));
            folder.cells.set_base(index, item.base);
            if let Some(state) = &mut state {
                // The record has the time at which it was written, or that of another clock, which may be behind.
                let now_ms = unix_ms(SystemTime::now());
                let earliest = |_| push.time_ms.min(now_ms).saturating_sub(folder.options.clock_error_ms);
                let time_ms = due.map_or(push.time_ms, earliest);
                state.count(time_ms, item.delta, self.types.get(&push.namespace), due);
            }
        }
        Tally::count(&folder.tally.pushed_adds);
        if is_duplicate {
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
            Ok::<_, LocalError>(ended)
        });
        for namespace in removed.await.into_iter().flatten() {
            self.pushes.remove(&namespace);
            Tally::count(&self.folder.tally.pushes);
        }
        let (folder, held) = (self.folder.clone(), self.held());
        blocking(failed, move || folder.free_unused(|namespace| held.iter().any(|held| held == namespace))).await;
    }
}

/// Calls the file system or the log on a thread that may wait for it.
async fn blocking<T: Send + 'static, E: Display + Send + 'static>(
    failed: &mut Vec<String>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
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
