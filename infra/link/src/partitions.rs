//! The number of partitions of a store on a Redis Cluster (decision 0084).

use crate::{ConnectError, Link, Primary, ReplicaWait, preflight};

/// Records the number of partitions under this key where there is none yet. `primary`: that of the key. `shown`: the address
/// without its password.
///
/// # Errors
/// [`ConnectError::Partitions`]: there is another number. Its data would not be found.
pub async fn agree_on_partitions(
    primary: Primary,
    key: &str,
    partitions: u16,
    shown: &str,
    allow_volatile: bool,
) -> Result<(), ConnectError> {
    let link = Link::new(primary, ReplicaWait::default(), []);
    preflight(&link, shown, allow_volatile).await?;
    let unreachable = |error| ConnectError::unreachable(shown, error);
    link.call(redis::cmd("SET").arg(key).arg(partitions).arg("NX")).await.map_err(unreachable)?;
    let found = link.call(redis::cmd("GET").arg(key)).await.map_err(unreachable)?;
    match redis::from_redis_value::<u64>(found) {
        Ok(found) if found == u64::from(partitions) => Ok(()),
        found => {
            let found = found.unwrap_or(0);
            Err(ConnectError::Partitions { url: shown.to_owned(), found, wanted: partitions })
        }
    }
}
