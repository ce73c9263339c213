//! The Redis with the counter sets.

use super::count::PublishedCount;
use crate::namespace::PublishedTo;
use redis::Cmd;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tallystone_client::compact::IDS_MAX;
use tallystone_link::{Link, LinkError, Primary, ReplicaWait};
use tallystone_lua::keys::slot_of;
use tallystone_model::Refusal;

/// Bits of a time in Unix ms: enough until 2039, and a later one still fits, only in more memory.
const TIME_WIDTH: &str = "41";

/// The text in a refusal of a command whose set has so many fields that a command may have fewer counts.
const TOO_MANY_VALUES: &str = "a command writes at most";
/// Counts that a command may always have, in a set of 256 fields too.
const COUNTS_ALWAYS: usize = 64;
/// Commands that find out which counts of a batch the set refuses. One of a thousand takes twenty.
const SPLITS_MAX: usize = 64;

/// A Redis that has counter sets, if its module is loaded.
#[derive(Clone)]
pub struct CounterSets {
    primary: Primary,
    /// By slot: each set is one key. Where there is no Redis Cluster, they all have the same.
    links: Arc<Mutex<HashMap<u16, Arc<Link>>>>,
    /// Shown in errors, without its password.
    shown: Arc<str>,
}

impl fmt::Debug for CounterSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CounterSets({})", self.shown)
    }
}

/// What happened to counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The set has these now.
    pub set: usize,
    /// The set had the same or later ones.
    pub older: usize,
    /// They are below 0, and the field is unsigned.
    pub negative: usize,
    /// The set refuses these alone: their records are damaged, or no table has room for a new id.
    pub refused: usize,
    /// Why it refuses them.
    pub why: Option<String>,
}

/// Why counts were not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    /// The Redis does not answer, or is full. The counts may be sent again.
    #[error("{0}")]
    Unavailable(String),
    /// The records of some of these counts cannot be read from disk now, a set is being restored, or the user has no right to it yet.
    /// They may be sent again; others are not concerned.
    #[error("{0}")]
    NotNow(String),
    /// The set refuses some of the counts of a command, and has the others.
    #[error("{0}")]
    Some(String),
    /// It has no counter set at this key.
    #[error("{0}")]
    NoSet(String),
    /// It refuses these counts: no module, another type of value, no such field.
    #[error("{0}")]
    Refused(String),
    /// Some of the counts are below 0, and the field is unsigned. Those of the command that has it are not set.
    #[error("a count is below 0, and the field is unsigned")]
    Negative,
}

impl CounterSets {
    /// This Redis, or this Redis Cluster; it is not connected before the first command. `shown` is its address in errors: pass
    /// it [`without_password`](tallystone_model::without_password).
    pub fn new(primary: Primary, shown: &str) -> CounterSets {
        CounterSets { primary, links: Arc::default(), shown: shown.into() }
    }

    /// A link to the primary that has this key.
    fn link(&self, key: &str) -> Arc<Link> {
        let slot = if self.primary.is_of_cluster() { slot_of(key) } else { 0 };
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Link::new(self.primary.with_slot(slot), ReplicaWait::default(), []));
        links.entry(slot).or_insert_with(new).clone()
    }

    /// Sets the field of each count that is later than what the set has.
    ///
    /// # Errors
    /// [`Unpublished`]; the set may have some of the counts. Publishing them again changes nothing.
    pub async fn publish(&self, to: &PublishedTo, counts: &[PublishedCount]) -> Result<Published, Unpublished> {
        match self.set_most(to, counts).await {
            Err(Unpublished::Negative) => {
                let fitting: Vec<PublishedCount> = counts.iter().filter(|count| count.count >= 0).copied().collect();
                let negative = counts.len() - fitting.len();
                let published =
                    if fitting.is_empty() { Published::default() } else { self.set_most(to, &fitting).await? };
                Ok(Published { negative, ..published })
            }
            published => published,
        }
    }

    /// Sets the counts that the set takes. If it refuses some, halves find out which.
    async fn set_most(&self, to: &PublishedTo, counts: &[PublishedCount]) -> Result<Published, Unpublished> {
        let mut published = Published::default();
        let (mut parts, mut commands) = (vec![counts], 0);
        while let Some(part) = parts.pop() {
            commands += 1;
            match self.set_newer(to, part).await {
                Ok(set) if part.len() == counts.len() => (published.set, published.older) = (set, part.len() - set),
                // Those that were later cannot be distinguished any more: the command that failed has set them.
                Ok(_) => published.set += part.len(),
                Err(Unpublished::Some(_)) if part.len() > 1 && commands < SPLITS_MAX => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(Unpublished::Some(why)) => {
                    published.refused += part.len();
                    published.why = Some(why);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(published)
    }

    /// The number of counts that were set.
    async fn set_newer(&self, to: &PublishedTo, counts: &[PublishedCount]) -> Result<usize, Unpublished> {
        let mut set = 0;
        for counts in counts.chunks(IDS_MAX) {
            set += self.set_newer_of_one_command(to, counts).await?;
        }
        Ok(set)
    }

    async fn set_newer_of_one_command(
        &self,
        to: &PublishedTo,
        counts: &[PublishedCount],
    ) -> Result<usize, Unpublished> {
        match self.set_newer_at_once(to, counts).await {
            Err(Unpublished::Refused(why)) if counts.len() > COUNTS_ALWAYS && why.contains(TOO_MANY_VALUES) => {
                let mut set = 0;
                for counts in counts.chunks(COUNTS_ALWAYS) {
                    set += self.set_newer_at_once(to, counts).await?;
                }
                Ok(set)
            }
            done => done,
        }
    }

    async fn set_newer_at_once(&self, to: &PublishedTo, counts: &[PublishedCount]) -> Result<usize, Unpublished> {
        let mut packed = Vec::with_capacity(counts.len() * PublishedCount::PACKED_BYTES);
        counts.iter().for_each(|count| count.pack_into(&mut packed));
        let mut command = redis::cmd("CT.PSETNEWER");
        command.arg(&to.key).arg(&to.field).arg(to.time_field()).arg(packed);
        let reply: usize = self.call(to, &command).await?;
        Ok(reply.min(counts.len()))
    }

    /// Creates the counter set with the default options, or adds the fields that it lacks. `width`: of the count, as in
    /// `CT.CREATE`.
    ///
    /// # Errors
    /// [`Unpublished`]. May be repeated.
    pub async fn create(&self, to: &PublishedTo, width: &str) -> Result<(), Unpublished> {
        let fields = [(to.field.clone(), width), (to.time_field(), TIME_WIDTH)];
        let info = self.call::<HashMap<String, String>>(to, redis::cmd("CT.INFO").arg(&to.key)).await;
        let schema = match info {
            Ok(mut info) => info.remove("schema").unwrap_or_default(),
            Err(Unpublished::NoSet(_)) => {
                let mut command = redis::cmd("CT.CREATE");
                command.arg(&to.key).arg("SCHEMA");
                for (field, width) in &fields {
                    command.arg(field).arg(*width);
                }
                return self.call::<()>(to, &command).await;
            }
            Err(other) => return Err(other),
        };
        // Pairs of a field and its width.
        let existing: Vec<&str> = schema.split(' ').step_by(2).collect();
        for (field, width) in fields.iter().filter(|(field, _)| !existing.contains(&field.as_str())) {
            let mut command = redis::cmd("CT.ALTER");
            command.arg(&to.key).arg("ADD").arg(field).arg(*width);
            self.call::<()>(to, &command).await?;
        }
        Ok(())
    }

    async fn call<T: redis::FromRedisValue>(&self, to: &PublishedTo, command: &Cmd) -> Result<T, Unpublished> {
        let value = self.link(&to.key).call(command).await.map_err(|error| self.unpublished(to, error))?;
        redis::from_redis_value(value).map_err(|error| Unpublished::Refused(error.to_string()))
    }

    fn unpublished(&self, to: &PublishedTo, error: LinkError) -> Unpublished {
        let (code, detail) = (error.source.code().map(str::to_owned), error.source.detail().map(str::to_owned));
        let detail = detail.unwrap_or_default();
        let PublishedTo { key, field } = to;
        match (code.as_deref(), Refusal::from(error)) {
            (_, unavailable @ Refusal::Unavailable { .. }) => {
                Unpublished::Unavailable(format!("the Redis at {}: {unavailable}", self.shown))
            }
            (Some("NOSET"), _) => Unpublished::NoSet(format!("the Redis at {} has no counter set '{key}'", self.shown)),
            (Some("OVERFLOW"), _) => Unpublished::Negative,
            // Memory or the disk may come back: the counts wait, as long as there is room for them.
            (Some(code @ "OOM"), _) => {
                Unpublished::Unavailable(format!("the Redis at {}: {code} {detail}", self.shown))
            }
            (Some(code @ ("COLD" | "IOERR" | "RESTORING" | "NOPERM")), _) => {
                Unpublished::NotNow(format!("the counter set '{key}' at {}: {code} {detail}", self.shown))
            }
            (Some(code @ ("DAMAGED" | "FULL")), _) => {
                Unpublished::Some(format!("the counter set '{key}' at {}: {code} {detail}", self.shown))
            }
            (_, _) if detail.starts_with("unknown command") => {
                let why = format!("the Redis at {} has no counter sets: Tallystone's module is not loaded", self.shown);
                Unpublished::Refused(why)
            }
            (_, refusal) => {
                let why = if detail.is_empty() { refusal.to_string() } else { detail };
                let why = format!("the counter set '{key}' at {} refuses the field '{field}': {why}", self.shown);
                Unpublished::Refused(why)
            }
        }
    }
}
