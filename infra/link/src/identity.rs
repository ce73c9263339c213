//! The identity of a store: how a process notices that a Redis no longer has the data that it had (X7).
//!
//! The mark is one hash: `id`, chosen once; `born`, when; `beat`, which processes that write raise; `replaces`, the marks that
//! an operator has replaced by this one; `lost`, the mark that a process missed: no process starts on such a store; `objections`,
//! the marks that processes know instead of this one, and that stop no other process. All but the last two are written by
//! [transactions](crate::transaction), so that they are gone when the data is.
//!
//! A process that starts on an emptied store takes it for a new one. Those that know its earlier mark object to the new one
//! (decision 0252).

use crate::acl::{Loading, loading};
use crate::mark::{self, Mark, Objection, Verdict};
use crate::state::{DataLoss, StoreState, StoreStatus};
use crate::timeline::Timeline;
use crate::{ConnectError, Link, LinkError, Primary, ReplicaWait, transaction};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use redis::from_redis_value;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tallystone_model::Applied;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A loss is noticed within a second.
const PROBE_EVERY: Duration = Duration::from_millis(800);
/// The same while Redis does not answer: when it is back without its data, no other process shall have taken it for a new store.
const AGAIN_EVERY: Duration = Duration::from_millis(200);
/// A store is unavailable while a probe has had no answer for so long. An fsync may stall for a second.
const ANSWER_MAX: Duration = Duration::from_millis(2_500);
/// The time for objections of processes that know another mark: until it has passed, nothing begins in a new store.
const OBJECTIONS: Duration = Duration::from_secs(1);
/// An operator may change the ACL of a Redis at any time.
const LOADING_EVERY: Duration = Duration::from_secs(10);
const UNLOADABLE: &str = "tallystone_store_unloadable";
const LOST_WRITES: &str = "tallystone_store_failovers_with_lost_writes_total";

/// The identity of a store, as this process knows it.
pub struct Identity {
    /// A separate connection: a probe does not wait behind large calls.
    link: Link,
    /// The key of the mark.
    key: String,
    /// Shown in the log.
    url: String,
    /// The store may lose acknowledged writes, and the operator has accepted that.
    is_volatile: bool,
    /// When the time for objections to a new mark has passed.
    settled_at: Instant,
    known: Mutex<LastMark>,
    state: Arc<StoreState>,
}

struct LastMark {
    id: String,
    beat: u64,
    timeline: Timeline,
    /// The store had this mark then.
    seen_at: Instant,
    /// The mark of a store that this process has stopped.
    stopped: Option<String>,
}

impl Identity {
    /// Refuses a store of which a process has noticed that it is not what it was, and which no operator has accepted; and one
    /// that has none of the marks `wanted`, if there are any. It comes before all other checks of its data, which would give
    /// other reasons.
    pub async fn check(
        link: &Link,
        key: &str,
        url: &str,
        is_volatile: bool,
        wanted: &[String],
    ) -> Result<(), ConnectError> {
        let mark = Mark::read(link, key).await.map_err(|error| ConnectError::unreachable(url, error))?;
        if mark.lost.is_some() && !is_volatile {
            return Err(ConnectError::DataLoss { url: url.to_owned() });
        }
        if !wanted.is_empty() && mark.id.as_ref().is_none_or(|id| !wanted.contains(id)) {
            let found = mark.id.map_or("no mark".to_owned(), |id| format!("the mark {id}"));
            return Err(ConnectError::OtherStore { url: url.to_owned(), key: key.to_owned(), found });
        }
        Ok(())
    }

    /// Reads the mark of a store that [`check`](Identity::check) has let pass; a store without one gets it. `url` is shown
    /// in the log and in errors: pass it [`without_password`](tallystone_model::without_password).
    ///
    /// # Errors
    /// [`ConnectError::DataLoss`]: a process has noticed a loss, or has objected, since the check.
    pub async fn open(
        primary: Primary,
        key: &str,
        url: &str,
        is_volatile: bool,
    ) -> Result<Arc<Identity>, ConnectError> {
        describe_counter!(LOST_WRITES, "replicas that became the primary without the last writes");
        counter!(LOST_WRITES).increment(0);
        let link = Link::new(primary, ReplicaWait::default(), transaction::ALL);
        let unreachable = |error: LinkError| ConnectError::unreachable(url, error);
        let mut mark = Mark::read(&link, key).await.map_err(unreachable)?;
        if mark.id.is_none() {
            mark::choose(&link, key).await.map_err(unreachable)?;
            mark = Mark::read(&link, key).await.map_err(unreachable)?;
        }
        if mark.lost.is_some() && !is_volatile {
            return Err(ConnectError::DataLoss { url: url.to_owned() });
        }
        // Also for a process that finds the mark that another one has just chosen.
        let age = mark.age(&link).await.map_err(unreachable)?.filter(|_| !is_volatile);
        let settled_at = Instant::now() + age.map_or(Duration::ZERO, |age| OBJECTIONS.saturating_sub(age));
        let known = LastMark {
            id: mark.id.unwrap_or_default(),
            beat: mark.beat,
            timeline: mark.lineage.current,
            seen_at: mark.read_at,
            stopped: None,
        };
        let (known, state) = (Mutex::new(known), Arc::new(StoreState::new()));
        let (key, url) = (key.to_owned(), url.to_owned());
        let identity = Arc::new(Identity { link, key, url, is_volatile, settled_at, known, state });
        tokio::spawn(probe(Arc::downgrade(&identity)));
        Ok(identity)
    }

    /// What [`Link::guarded_by`] needs.
    pub fn state(&self) -> Arc<StoreState> {
        self.state.clone()
    }

    /// What the last probe found, and every change of that.
    pub fn watch(&self) -> watch::Receiver<StoreStatus> {
        self.state.status.subscribe()
    }

    /// Before what would make a new beginning in an emptied store: waits until the time for objections to a new mark has passed,
    /// then verifies it.
    ///
    /// # Errors
    /// As [`verify`](Identity::verify).
    pub async fn begin(&self) -> Result<(), LinkError> {
        sleep_until(self.settled_at).await;
        self.verify().await
    }

    /// Verifies the mark now: before an answer that would be wrong in an emptied store.
    ///
    /// # Errors
    /// Also if Redis does not answer.
    pub async fn verify(&self) -> Result<(), LinkError> {
        let mut known = self.known.lock().await;
        match self.find_loss(&mut known).await {
            Ok(loss) => self.report(loss.map_or(StoreStatus::Serving, StoreStatus::Lost), &known.id),
            Err(error) => {
                self.report(StoreStatus::Unavailable, &known.id);
                // A probe that was lost has changed nothing of what its caller is about to do.
                return Err(LinkError { applied: Applied::No, ..error });
            }
        }
        self.state.check()
    }

    async fn find_loss(&self, known: &mut LastMark) -> Result<Option<DataLoss>, LinkError> {
        let mut mark = Mark::read(&self.link, &self.key).await;
        // The connection has broken since the last probe: a Redis that was started again may be empty, and others may be about to begin in it.
        if mark.as_ref().is_err_and(|error| error.lost) && self.is_available() {
            mark = Mark::read(&self.link, &self.key).await;
        }
        let mark = mark?;
        let Some(id) = mark.id.clone() else { return self.lost(known, DataLoss::Absent).await };
        if id != known.id {
            if mark.replaces(&known.id) {
                tracing::warn!(redis = self.url, "an operator has accepted the store as it is");
            } else if self.object(known, &id).await == Verdict::Newer && self.is_volatile {
                tracing::warn!(
                    redis = self.url,
                    "another process has begun the store again: going on, because it may be volatile"
                );
            } else {
                return Ok(Some(DataLoss::Foreign { expected: known.id.clone(), found: id }));
            }
            *known = LastMark { id, beat: mark.beat, stopped: None, ..*known };
        }
        known.seen_at = mark.read_at;
        if mark.beat < known.beat {
            // A replica may become the primary without the last writes. That is no older copy of the data: it says whose
            // replica it was.
            if known.timeline == Timeline::UNKNOWN || mark.lineage.before != Some(known.timeline) {
                return self.lost(known, DataLoss::Older).await;
            }
            counter!(LOST_WRITES).increment(1);
            tracing::warn!(redis = self.url, "a replica has become the primary without the last writes: they are lost");
        }
        if mark.lineage.current != Timeline::UNKNOWN {
            known.timeline = mark.lineage.current;
        }
        if mark.lost.is_some() && !self.is_volatile {
            return Ok(Some(DataLoss::Noticed));
        }
        known.beat = mark.beat;
        if self.state.take_wrote() {
            let raised = self.link.eval(&transaction::call(transaction::BEAT, &self.key), false).await;
            match raised.inspect_err(|_| self.state.wrote()) {
                Ok(beat) => known.beat = from_redis_value(beat).unwrap_or(known.beat).max(known.beat),
                // A full store still serves what needs no memory. The beat is raised when there is room again.
                Err(error) if error.is_full() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether Redis could load its data at its next start, as far as this connection may know; `before`: what was known.
    async fn check_loading(&self, before: bool) -> bool {
        // Of a Redis that may be volatile, the operator has accepted that.
        let found = if self.is_volatile { Ok(Loading::Allowed) } else { loading(&self.link).await };
        let is_loadable = match found {
            Ok(Loading::Allowed) => true,
            Ok(Loading::Denied { rights }) => {
                if before {
                    tracing::error!(
                        redis = self.url,
                        rights,
                        "this Redis would lose its data at its next start, because the user 'default' may not execute what its file has: write `user default off ~* &* +@all` in its ACL"
                    );
                }
                false
            }
            // The check at the start has warned. An answer that is missing says nothing.
            Ok(Loading::Unknown { .. }) | Err(_) => before,
        };
        // Every time: the store is open before the recorder of metrics.
        describe_gauge!(UNLOADABLE, "1 while this Redis would lose its data at its next start, by its ACL; else 0");
        gauge!(UNLOADABLE, "mark" => self.key.clone()).set(if is_loadable { 0.0 } else { 1.0 });
        is_loadable
    }

    /// The store has another mark. If that was chosen after this process had last seen its own, the store was emptied, and a process
    /// that knows nothing of that has begun it again: it is stopped. If not, this process is at the wrong address, and stops
    /// no other.
    async fn object(&self, known: &mut LastMark, found: &str) -> Verdict {
        let objection = Objection {
            known: &known.id,
            found,
            unseen_for: known.seen_at.elapsed(),
            is_volatile: self.is_volatile,
            is_repeated: known.stopped.as_deref() == Some(found),
        };
        // This process refuses all calls in any case, and objects again with each probe.
        let verdict = mark::object(&self.link, &self.key, objection).await.unwrap_or_else(|error| {
            tracing::debug!(error = %error.source, "the objection to the mark is not recorded");
            Verdict::Other
        });
        if verdict == Verdict::Stopped {
            known.stopped = Some(found.to_owned());
        }
        verdict
    }

    /// The store is not what it was: no process may start on it, unless the operator has accepted losses in advance.
    async fn lost(&self, known: &mut LastMark, loss: DataLoss) -> Result<Option<DataLoss>, LinkError> {
        if !self.is_volatile {
            let noted = self.link.call(redis::cmd("HSETNX").arg(&self.key).arg("lost").arg(&known.id)).await;
            // As above. A store that is full refuses it.
            if let Err(error) = noted {
                tracing::debug!(error = %error.source, "the loss is not recorded");
            }
            return Ok(Some(loss));
        }
        tracing::warn!(redis = self.url, %loss, "the store is not what it was: going on, because it may be volatile");
        mark::choose(&self.link, &self.key).await?;
        let mark = Mark::read(&self.link, &self.key).await?;
        *known = LastMark {
            id: mark.id.unwrap_or_default(),
            beat: mark.beat,
            seen_at: mark.read_at,
            stopped: None,
            ..*known
        };
        Ok(None)
    }

    fn is_available(&self) -> bool {
        *self.state.status.borrow() != StoreStatus::Unavailable
    }

    /// Opens or closes the store for all links. A lost store that does not answer stays closed. `mark`: the one that was known.
    fn report(&self, status: StoreStatus, mark: &str) {
        let mut was_lost = false;
        let changed = self.state.status.send_if_modified(|before| {
            was_lost = matches!(before, StoreStatus::Lost(_));
            let changes = *before != status && !(was_lost && status == StoreStatus::Unavailable);
            if changes {
                before.clone_from(&status);
            }
            changes
        });
        match status {
            StoreStatus::Lost(loss) if changed => tracing::error!(
                redis = self.url,
                mark,
                %loss,
                "the store is not what it was: refusing every call until its data is back, or `tallystone store accept`"
            ),
            StoreStatus::Serving if changed && was_lost => {
                tracing::info!(redis = self.url, "the store is what it was, or was accepted: serving again");
            }
            _ => {}
        }
    }
}

/// Verifies the mark, and that Redis could load its data again, until the identity is dropped.
async fn probe(identity: Weak<Identity>) {
    let (mut is_loadable, mut loading_at, mut pause) = (true, Instant::now(), PROBE_EVERY);
    loop {
        sleep(pause).await;
        let Some(identity) = identity.upgrade() else { return };
        let mut probed = Box::pin(async {
            if let Err(error) = identity.verify().await
                && !error.is_data_loss
            {
                tracing::debug!(error = %error.source, "the identity of the store is not verified");
            }
            if loading_at <= Instant::now() {
                loading_at = Instant::now() + LOADING_EVERY;
                is_loadable = identity.check_loading(is_loadable).await;
            }
        });
        // Only the status says so: whether the connection is lost is judged where its replies are awaited.
        if timeout(ANSWER_MAX, &mut probed).await.is_err() {
            identity.report(StoreStatus::Unavailable, "");
            probed.await;
        }
        pause = if identity.is_available() { PROBE_EVERY } else { AGAIN_EVERY };
    }
}
