//! The Redis with the counter sets, and their refill from the counters' checkpoints (W6).

use crate::counters::connect_namespaces;
use crate::{AssemblyError, Config};
use tallystone_counters::publish::{CounterSets, Republished};
use tallystone_counters::{NamespaceName, Refusal};
use tallystone_link::ConnectError;
use tallystone_model::without_password;

/// The counter sets of the configuration. Nothing is opened before the first command.
pub fn counter_sets(config: &Config) -> Result<CounterSets, ConnectError> {
    let shown = without_password(config.compact.url(&config.redis));
    Ok(CounterSets::new(config.compact.primary(&config.redis)?, &shown))
}

/// Publishes the counts of a namespace again, while rollups continue. `create`: the width of a count in a counter set that is
/// created if it is missing. `progress` is called after each page.
///
/// # Errors
/// [`AssemblyError::Republish`]: the namespace, and why. May be repeated.
pub async fn republish(
    config: &Config,
    name: &NamespaceName,
    create: Option<&str>,
    progress: impl FnMut(&Republished),
) -> Result<Republished, AssemblyError> {
    config.redis.check()?;
    config.compact.check()?;
    let (namespaces, sets) = (connect_namespaces(&config.redis).await?, counter_sets(config)?);
    let republished = async {
        let not_found = || Refusal::NamespaceNotFound { namespace: name.to_string() };
        let namespace = namespaces.get(name).await?.ok_or_else(not_found)?;
        let store = namespaces.open(&namespace).await?;
        tallystone_counters::publish::republish(&store, &sets, create, progress).await
    };
    republished.await.map_err(|why| AssemblyError::Republish { namespace: name.to_string(), why })
}
