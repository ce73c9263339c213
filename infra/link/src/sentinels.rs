//! Which Redis is the primary, by its Sentinels (X2; decision 0077).

use crate::topology::{Claimed, TopologyNode};
use redis::{ErrorKind, RedisError, RedisResult, Value, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The Sentinels of one primary.
pub(crate) struct Sentinels {
    sentinels: Vec<Arc<TopologyNode>>,
    /// Their name of the primary.
    name: Arc<str>,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<TopologyNode>, name: &str) -> Sentinels {
        Sentinels { sentinels: sentinels.into_iter().map(Arc::new).collect(), name: name.into() }
    }

    /// The primary, as the Sentinel of the last failover knows it.
    ///
    /// # Errors
    /// No Sentinel answers, or none knows the primary: what each of them said.
    pub(crate) async fn primary(&self) -> RedisResult<Claimed> {
        let mut reads = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, name) = (sentinel.clone(), self.name.clone());
            reads.spawn(async move { read(sentinel.query(redis::cmd("SENTINEL").arg("MASTER").arg(&*name)).await?) });
        }
        let mut newest: Option<Claimed> = None;
        let mut failures = Vec::new();
        while let Some(answer) = reads.join_next().await {
            match answer {
                Ok(Ok(answer)) if newest.as_ref().is_none_or(|newest| newest.epoch < answer.epoch) => {
                    newest = Some(answer);
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) => failures.push(why),
                Err(panic) => failures.push(panic.to_string()),
            }
        }
        match newest {
            Some(newest) => Ok(newest),
            None => {
                let what = "no Sentinel names the primary";
                Err(RedisError::from((ErrorKind::Io, what, failures.join("; "))))
            }
        }
    }
}

fn read(answer: Value) -> Result<Claimed, String> {
    let fields: HashMap<String, String> = from_redis_value(answer).map_err(|error| error.to_string())?;
    let number = |field: &str| fields.get(field).and_then(|value| value.parse::<u64>().ok());
    match (number("config-epoch"), fields.get("ip"), number("port").and_then(|port| u16::try_from(port).ok())) {
        (Some(epoch), Some(host), Some(port)) => Ok(Claimed { host: host.clone(), port, epoch }),
        _ => Err("a Sentinel's answer has no address".to_owned()),
    }
}
