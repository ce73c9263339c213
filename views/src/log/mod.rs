//! The log of views on Redis, in partitions by video: views that were accepted, pairs that have counted, and deltas that
//! wait for the counters.
//!
//! What lives here: streams and scripts, and the formats of their records. What may not: which views count (`dedupe`).

mod partition;
mod records;

pub use partition::{Acquired, Commit, Entry, OwnerError, Ownership, Partition, WaitingDeltas};
pub use records::{Deltas, PairsRecord};

use crate::dedupe::{PairHasher, SECRET_BYTES};
use crate::steps::{StepObserver, unobserved};
use redis::{Value, from_redis_value};
use std::sync::Arc;
use tallystone_link::{
    ConnectError, Demands, Format, Identity, Link, LinkError, RedisConfig, ReplicaWait, StoreStatus,
};
use tallystone_lua::views::{LAYOUT, ViewScript};
use tallystone_model::Refusal;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The identity mark of the log.
const MARK: &str = "tc:views:store";

fn format() -> Format {
    Format { what: "views", key: "tc:views:format".to_owned(), used: LAYOUT.to_owned(), number: 1 }
}

/// The log of one Redis.
pub struct ViewLog {
    partitions: Vec<Arc<Partition>>,
    hasher: PairHasher,
    identity: Arc<Identity>,
    steps: StepObserver,
    _tasks: JoinSet<()>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Redis cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The log has another number of partitions than the configuration. Videos would move to partitions without their pairs.
    #[error(
        "the log of views was created with {found} partitions, which cannot change; set views.partitions = {found}"
    )]
    Partitions {
        /// Its number.
        found: u16,
    },
}

impl ViewLog {
    /// Connects, checks version, durability and format, and loads the scripts. A new log gets this number of partitions.
    pub async fn connect(redis: &RedisConfig, partitions: u16) -> Result<ViewLog, OpenError> {
        let (primary, room) = (redis.access().primary(&redis.url)?, redis.room("views")?);
        let (replicas, allow_volatile) = (redis.replicas(), redis.allow_volatile);
        let shown = tallystone_model::without_password(&redis.url);
        let checked = (MARK, &redis.store_ids[..], format());
        let demands = Demands::open(primary.clone(), &shown, replicas, allow_volatile, checked).await?;
        let condition = demands.condition();
        let link = |replicas: ReplicaWait| {
            let scripts = ViewScript::ALL.iter().map(|script| script.source());
            Link::new(primary.clone(), replicas, scripts).on(condition.clone())
        };
        let first = link(replicas);
        let unreachable = |failure: LinkError| ConnectError::unreachable(&shown, failure);
        first.load_scripts().await.map_err(unreachable)?;
        let identity = Identity::open(primary.clone(), MARK, &shown, allow_volatile).await?;
        // The layout of a new log would hide that an earlier one is lost.
        identity.begin().await.map_err(unreachable)?;
        let layout = layout(&first, partitions).await.map_err(unreachable)?;
        if layout.partitions != partitions {
            return Err(OpenError::Partitions { found: layout.partitions });
        }
        let (guarded, clock) = (|| link(replicas).guarded_by(identity.state()), redis.clock("views"));
        let partition = |number| {
            let (id, links) = (layout.id.clone(), [guarded(), guarded()]);
            Arc::new(Partition::new(number, id, links, clock.clone(), room.clone()))
        };
        let partitions = (0..partitions).map(partition).collect();
        let mut tasks = clock.watch(&primary);
        tasks.spawn(room.watch());
        let (hasher, steps) = (PairHasher::new(&layout.secret), unobserved());
        Ok(ViewLog { partitions, hasher, identity, steps, _tasks: tasks })
    }

    /// The same log, whose owners and callers report their steps.
    pub fn observed_by(mut self, steps: StepObserver) -> ViewLog {
        self.steps = steps;
        self
    }

    /// What observes the steps.
    pub(crate) fn steps(&self) -> &StepObserver {
        &self.steps
    }

    /// An owner has come to this point.
    pub(crate) fn reached(&self, step: &'static str) {
        (self.steps)(step);
    }

    /// Takes a Redis over as it is, after its data was deleted or is older than it was (X7). Returns its new mark; `None`: no
    /// process has noticed a loss.
    pub async fn accept(redis: &RedisConfig) -> Result<Option<String>, ConnectError> {
        let shown = tallystone_model::without_password(&redis.url);
        Identity::accept(redis.access().primary(&redis.url)?, MARK, &shown).await
    }

    /// Its identity mark, if it has one. A Redis Cluster has no log.
    pub async fn marks(redis: &RedisConfig) -> Result<Vec<String>, ConnectError> {
        let mark = (redis.partition_count() == 1).then(|| (0, MARK.to_owned()));
        Identity::show_each(redis, mark.into_iter()).await
    }

    /// What the last probe of the store found, and every change of that.
    pub fn status(&self) -> watch::Receiver<StoreStatus> {
        self.identity.watch()
    }

    /// Verifies that the log is what it was (X7): before an owner begins with what it finds there.
    ///
    /// # Errors
    /// [`Refusal::DataLoss`]; [`Refusal::Unavailable`]: Redis does not answer.
    pub(crate) async fn verify(&self) -> Result<(), Refusal> {
        Ok(self.identity.verify().await?)
    }

    /// The partitions, in the order of their numbers.
    pub fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// Hashes the pairs of this log.
    pub fn hasher(&self) -> &PairHasher {
        &self.hasher
    }
}

/// What is drawn and set when a log is created.
struct Layout {
    partitions: u16,
    secret: [u8; SECRET_BYTES],
    /// Names the log in tokens: the first 48 bits of a random UUID, in hex.
    id: Arc<str>,
}

/// The layout of the log. A log of an earlier version gets an id, too.
async fn layout(link: &Link, partitions: u16) -> Result<Layout, LinkError> {
    let drawn = [Uuid::new_v4(), Uuid::new_v4()].map(|half| half.simple().to_string());
    let id = Uuid::new_v4().simple().to_string()[..12].to_owned();
    let set = |field: &'static str, value: String| {
        let mut command = redis::cmd("HSETNX");
        command.arg(LAYOUT).arg(field).arg(value);
        command
    };
    link.call(&set("partitions", partitions.to_string())).await?;
    link.call(&set("secret", drawn.concat())).await?;
    link.call(&set("id", id)).await?;
    let found: Value = link.call(redis::cmd("HMGET").arg(LAYOUT).arg("partitions").arg("secret").arg("id")).await?;
    let (partitions, text, id): (u16, String, String) = from_redis_value(found).unwrap_or_default();
    let mut secret = [0; SECRET_BYTES];
    // The text has 244 random bits in 64 bytes.
    secret.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref());
    Ok(Layout { partitions, secret, id: id.into() })
}
