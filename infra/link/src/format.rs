//! Which layout what is kept in a Redis has.

use crate::{ConnectError, Failure, Link};
use redis::Value;

/// The layout of what is kept.
pub struct Format {
    /// What that is, for people.
    pub what: &'static str,
    /// The key that says which layout it has.
    pub key: &'static str,
    /// A key that is there if anything is: the first layouts, number 1, did not name themselves.
    pub used: &'static str,
    /// Raised with every change that older servers would misread.
    pub number: u64,
}

impl Format {
    /// Refuses a Redis that has it laid out otherwise, and marks one that has none. `url`: as it may be shown.
    pub async fn check(&self, link: &Link, url: &str) -> Result<(), ConnectError> {
        let unreachable = |failure: Failure| ConnectError::unreachable(url, failure);
        let found = match link.call(redis::cmd("GET").arg(self.key)).await.map_err(unreachable)? {
            Value::Nil => {
                let used = link.call(redis::cmd("EXISTS").arg(self.used)).await.map_err(unreachable)?;
                if used == Value::Int(1) { 1 } else { self.number }
            }
            Value::BulkString(number) => String::from_utf8_lossy(&number).parse().unwrap_or(0),
            _ => 0,
        };
        if found != self.number {
            return Err(ConnectError::Format { what: self.what, found, read: self.number });
        }
        link.call(redis::cmd("SET").arg(self.key).arg(self.number).arg("NX")).await.map_err(unreachable).map(drop)
    }
}
