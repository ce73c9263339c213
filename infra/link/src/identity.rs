//! The identity of a store: how a process notices that a Redis no longer has the data that it had (X7).
//!
//! The mark is one hash: `id`, chosen once; `beat`, which processes that write raise; `replaces`, the mark that an
//! operator has replaced by this one; `lost`, the mark that a process missed: no process starts on such a store. All but
//! `lost` is written by [transactions](crate::transaction), so that it is gone when the data is.

use crate::acl::{Loading, loading};
use crate::state::{DataLoss, StoreState, StoreStatus};
use crate::timeline::Timeline;
use crate::{ConnectError, Link, LinkError, Primary, RedisConfig, ReplicaWait, transaction};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use redis::{Cmd, from_redis_value};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tallystone_model::Applied;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use uuid::Uuid;

/// A loss is noticed within a second.
const PROBE_EVERY: Duration = Duration::from_millis(800);
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
    known: Mutex<LastMark>,
    state: Arc<StoreState>,
}

struct LastMark {
    id: String,
    beat: u64,
    timeline: Timeline,
}

/// The fields of a mark.
struct Mark {
    id: Option<String>,
    beat: u64,
    replaces: Option<String>,
    lost: Option<String>,
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
        let mark = read(link, key).await.map_err(|error| ConnectError::unreachable(url, error))?;
        if mark.lost.is_some() && !is_volatile {
            return Err(ConnectError::DataLoss { url: url.to_owned() });
        }
        if !wanted.is_empty() && mark.id.as_ref().is_none_or(|id| !wanted.contains(id)) {
            let found = mark.id.map_or("no mark".to_owned(), |id| format!("the mark {id}"));
            return Err(ConnectError::OtherStore { url: url.to_owned(), key: key.to_owned(), found });
        }
        Ok(())
    }

    /// The marks under these keys, each in its slot, as far as there are any.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`], [`ConnectError::Denied`].
    pub async fn show_each(
        redis: &RedisConfig,
        marks: impl Iterator<Item = (u16, String)>,
    ) -> Result<Vec<String>, ConnectError> {
        let shown = tallystone_model::without_password(&redis.url);
        let primary = redis.access().first_primary(&redis.url)?;
        let mut ids = Vec::new();
        for (slot, key) in marks {
            let link = Link::new(primary.with_slot(slot), ReplicaWait::default(), []);
            let mark = read(&link, &key).await.map_err(|error| ConnectError::unreachable(&shown, error))?;
            ids.extend(mark.id);
        }
        Ok(ids)
    }

    /// Reads the mark of a store that [`check`](Identity::check) has let pass; a store without one gets it. `url` is shown
    /// in the log and in errors: pass it [`without_password`](tallystone_model::without_password).
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
        let mut mark = read(&link, key).await.map_err(unreachable)?;
        if mark.id.is_none() {
            choose(&link, key).await.map_err(unreachable)?;
            mark = read(&link, key).await.map_err(unreachable)?;
        }
        let timeline = link.lineage().await.map_err(unreachable)?.current;
        let known = LastMark { id: mark.id.unwrap_or_default(), beat: mark.beat, timeline };
        let state = Arc::new(StoreState::new());
        let identity =
            Identity { link, key: key.to_owned(), url: url.to_owned(), is_volatile, known: Mutex::new(known), state };
        let identity = Arc::new(identity);
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

    /// Verifies the mark now: before what would make a new beginning in an emptied store.
    ///
    /// # Errors
    /// Also if Redis does not answer.
    pub async fn verify(&self) -> Result<(), LinkError> {
        let mut known = self.known.lock().await;
        match self.find_loss(&mut known).await {
            Ok(loss) => self.report(loss.map_or(StoreStatus::Serving, StoreStatus::Lost), &known),
            Err(error) => {
                self.report(StoreStatus::Unavailable, &known);
                // A probe that was lost has changed nothing of what its caller is about to do.
                return Err(LinkError { applied: Applied::No, ..error });
            }
        }
        self.state.check()
    }

    async fn find_loss(&self, known: &mut LastMark) -> Result<Option<DataLoss>, LinkError> {
        let mark = read(&self.link, &self.key).await?;
        let Some(id) = mark.id else { return self.lost(known, DataLoss::Absent).await };
        if id != known.id {
            if mark.replaces.as_ref() != Some(&known.id) {
                return Ok(Some(DataLoss::Foreign { expected: known.id.clone(), found: id }));
            }
            tracing::warn!(redis = self.url, "an operator has accepted the store as it is");
            *known = LastMark { id, beat: mark.beat, ..*known };
        }
        let lineage = self.link.lineage().await?;
        if mark.beat < known.beat {
            // A replica may become the primary without the last writes. That is no older copy of the data: it says whose
            // replica it was.
            if known.timeline == Timeline::UNKNOWN || lineage.before != Some(known.timeline) {
                return self.lost(known, DataLoss::Older).await;
            }
            counter!(LOST_WRITES).increment(1);
            tracing::warn!(redis = self.url, "a replica has become the primary without the last writes: they are lost");
        }
        known.timeline = lineage.current;
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

    /// The store is not what it was: no process may start on it, unless the operator has accepted losses in advance.
    async fn lost(&self, known: &mut LastMark, loss: DataLoss) -> Result<Option<DataLoss>, LinkError> {
        if !self.is_volatile {
            self.link.call(redis::cmd("HSETNX").arg(&self.key).arg("lost").arg(&known.id)).await?;
            return Ok(Some(loss));
        }
        tracing::warn!(redis = self.url, %loss, "the store is not what it was: going on, because it may be volatile");
        choose(&self.link, &self.key).await?;
        let mark = read(&self.link, &self.key).await?;
        *known = LastMark { id: mark.id.unwrap_or_default(), beat: mark.beat, ..*known };
        Ok(None)
    }

    /// Opens or closes the store for all links. A lost store that does not answer stays closed.
    fn report(&self, status: StoreStatus, known: &LastMark) {
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
                mark = known.id,
                %loss,
                "the store is not what it was: refusing every call until its data is back, or `tallystone store accept`"
            ),
            StoreStatus::Serving if changed && was_lost => {
                tracing::info!(redis = self.url, "the store is what it was, or was accepted: serving again");
            }
            _ => {}
        }
    }

    /// The same for a store with a mark in each of these slots. Returns the new mark, of several the last one.
    ///
    /// # Errors
    /// As [`accept`](Identity::accept); some of the marks may be accepted then.
    pub async fn accept_each(
        redis: &RedisConfig,
        marks: impl Iterator<Item = (u16, String)>,
    ) -> Result<Option<String>, ConnectError> {
        let shown = tallystone_model::without_password(&redis.url);
        let primary = redis.access().first_primary(&redis.url)?;
        let mut accepted = None;
        for (slot, key) in marks {
            accepted = Identity::accept(primary.with_slot(slot), &key, &shown).await?.or(accepted);
        }
        Ok(accepted)
    }

    /// Takes a store over as it is, if a process has noticed that it is not what it was: those that know its earlier mark go
    /// on with it. Returns its new mark; `None`: no process has noticed a loss.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`], [`ConnectError::Denied`].
    pub async fn accept(primary: Primary, key: &str, url: &str) -> Result<Option<String>, ConnectError> {
        let link = Link::new(primary, ReplicaWait::default(), transaction::ALL);
        let unreachable = |error: LinkError| ConnectError::unreachable(url, error);
        let mark = read(&link, key).await.map_err(unreachable)?;
        let Some(lost) = mark.lost else { return Ok(None) };
        let id = Uuid::new_v4().to_string();
        let mut command = transaction::call(transaction::ACCEPT, key);
        command.arg(&id).arg(mark.id.unwrap_or(lost));
        link.eval(&command, false).await.map_err(unreachable)?;
        Ok(Some(id))
    }
}

/// Verifies the mark, and that Redis could load its data again, until the identity is dropped.
async fn probe(identity: Weak<Identity>) {
    let (mut is_loadable, mut loading_at) = (true, Instant::now());
    loop {
        tokio::time::sleep(PROBE_EVERY).await;
        let Some(identity) = identity.upgrade() else { return };
        if loading_at <= Instant::now() {
            loading_at = Instant::now() + LOADING_EVERY;
            is_loadable = identity.check_loading(is_loadable).await;
        }
        if let Err(error) = identity.verify().await
            && !error.is_data_loss
        {
            tracing::debug!(error = %error.source, "the identity of the store is not verified");
        }
    }
}

/// Gives a store a new mark if it has none.
async fn choose(link: &Link, key: &str) -> Result<(), LinkError> {
    let id = Uuid::new_v4().to_string();
    link.eval(transaction::call(transaction::CHOOSE, key).arg(id), false).await.map(drop)
}

async fn read(link: &Link, key: &str) -> Result<Mark, LinkError> {
    let mut command = Cmd::new();
    command.arg("HMGET").arg(key).arg("id").arg("beat").arg("replaces").arg("lost");
    let fields = from_redis_value(link.call(&command).await?).map_err(|error| LinkError::after(error.into()))?;
    let (id, beat, replaces, lost): (_, Option<u64>, _, _) = fields;
    Ok(Mark { id, beat: beat.unwrap_or(0), replaces, lost })
}
