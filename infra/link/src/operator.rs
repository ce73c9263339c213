//! What an operator reads and decides: the marks of a store, and that it is taken over as it is (X7).

use crate::mark::Mark;
use crate::{ConnectError, Identity, Link, LinkError, Primary, RedisConfig, ReplicaWait, transaction};

impl Identity {
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
            let mark = Mark::read(&link, &key).await.map_err(|error| ConnectError::unreachable(&shown, error))?;
            ids.extend(mark.id);
        }
        Ok(ids)
    }

    /// Takes a store over as it is, if a process has noticed that it is not what it was, or has objected to its mark: those that
    /// know another mark go on with it. Returns its new mark; `None`: no process has noticed a loss or objected.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`], [`ConnectError::Denied`].
    pub async fn accept(primary: Primary, key: &str, url: &str) -> Result<Option<String>, ConnectError> {
        let link = Link::new(primary, ReplicaWait::default(), transaction::ALL);
        let unreachable = |error: LinkError| ConnectError::unreachable(url, error);
        let mark = Mark::read(&link, key).await.map_err(unreachable)?;
        mark.accept(&link, key).await.map_err(unreachable)
    }

    /// As [`accept`](Identity::accept), for a store with a mark in each of these slots. Returns the new mark, of several the last one.
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
}
