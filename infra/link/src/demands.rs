//! What a Redis must be, checked again when another one answers (Q16): the node that a failover has made the primary may have
//! other settings.

use crate::timeline::Timeline;
use crate::{Condition, ConnectError, Format, Identity, Link, Primary, ReplicaWait, preflight, transaction};
use redis::{ErrorKind, RedisError, RedisResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// The longest check. A Redis that loads its data takes longer: then the next call tries again.
const CHECK_TIMEOUT: Duration = Duration::from_secs(4);

/// What a Redis must be, and which one has met it.
pub struct Demands {
    primary: Primary,
    /// Shown in errors, without its password.
    url: String,
    replicas: ReplicaWait,
    allow_volatile: bool,
    format: Format,
    met_by: AtomicU32,
}

impl Demands {
    /// Checks a Redis for the first time, with its identity mark, which must be one of the given ones if there are any, and the
    /// format of its data. `url` is shown in errors: pass it
    /// [`without_password`](tallystone_model::without_password).
    ///
    /// # Errors
    /// It does not meet them, or does not answer.
    pub async fn open(
        primary: Primary,
        url: &str,
        replicas: ReplicaWait,
        allow_volatile: bool,
        (mark, store_ids, format): (&str, &[String], Format),
    ) -> Result<Demands, ConnectError> {
        let met_by = AtomicU32::new(Timeline::UNKNOWN.0);
        let demands = Demands { primary, url: url.to_owned(), replicas, allow_volatile, format, met_by };
        let timeline = demands.examine(Some((mark, store_ids))).await?;
        demands.met_by.store(timeline.0, Ordering::Relaxed);
        Ok(demands)
    }

    /// What [`Link::on`] needs.
    pub fn condition(self) -> Condition {
        let demands = Arc::new(self);
        Condition::new(move |timeline| {
            let demands = demands.clone();
            async move { demands.check(timeline).await }
        })
    }

    /// Checks the Redis that has this timeline, unless it was the last one that was checked.
    async fn check(&self, timeline: Timeline) -> RedisResult<()> {
        if self.met_by.load(Ordering::Relaxed) == timeline.0 {
            return Ok(());
        }
        let refused = |why: String| RedisError::from((ErrorKind::Client, "this Redis cannot be used", why));
        let examined = timeout(CHECK_TIMEOUT, Box::pin(self.examine(None))).await;
        let examined = examined
            .map_err(|_| refused("it does not answer in time".to_owned()))?
            .map_err(|error| refused(error.to_string()))?;
        if examined != timeline {
            return Err(refused("another one has become the primary meanwhile".to_owned()));
        }
        self.met_by.store(timeline.0, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the timeline of the Redis that meets them. `mark`: its identity is checked, too, which is probed from then on.
    async fn examine(&self, mark: Option<(&str, &[String])>) -> Result<Timeline, ConnectError> {
        // Over a separate connection, which makes no demands.
        let link = Link::new(self.primary.clone(), self.replicas, transaction::ALL);
        preflight(&link, &self.url, self.allow_volatile).await?;
        // A store that has lost its data may seem to have another format.
        if let Some((mark, store_ids)) = mark {
            Identity::check(&link, mark, &self.url, self.allow_volatile, store_ids).await?;
        }
        self.format.check(&link, &self.url).await?;
        let lineage = link.lineage().await.map_err(|error| ConnectError::unreachable(&self.url, error))?;
        Ok(lineage.current)
    }
}
