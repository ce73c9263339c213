//! Which layout the queues of a Redis have.

use redis::Value;
use tallystone_link::{ConnectError, Failure, Link};
use tallystone_lua::keys;

/// The layout of what is kept in Redis; raised with every change that older servers would misread.
const FORMAT: u64 = 2;
const FORMAT_KEY: &str = "ts:format";

/// Refuses a Redis whose queues are laid out otherwise, and marks one that has none. `url`: as it may be shown.
pub(super) async fn check(link: &Link, url: &str) -> Result<(), ConnectError> {
    let unreachable = |failure: Failure| ConnectError::unreachable(url, failure);
    let found = match link.call(redis::cmd("GET").arg(FORMAT_KEY)).await.map_err(unreachable)? {
        Value::Nil => {
            // The first format did not name itself.
            let queues = link.call(redis::cmd("EXISTS").arg(keys::QUEUES)).await.map_err(unreachable)?;
            if queues == Value::Int(1) { 1 } else { FORMAT }
        }
        Value::BulkString(number) => String::from_utf8_lossy(&number).parse().unwrap_or(0),
        _ => 0,
    };
    if found != FORMAT {
        return Err(ConnectError::Format { found, read: FORMAT });
    }
    link.call(redis::cmd("SET").arg(FORMAT_KEY).arg(FORMAT).arg("NX")).await.map_err(unreachable).map(drop)
}
