//! The format of the data in a Redis: one number for the queues, one for the counters.

use crate::{ConnectError, Link, LinkError, transaction};
use redis::Value;

/// One format: how one kind of data is laid out in Redis.
pub struct Format {
    /// The kind of data, as errors name it.
    pub what: &'static str,
    /// The key that holds the format number.
    pub key: String,
    /// A key that exists if there is any data. Format 1 did not write [`Format::key`]: data without that key is format 1.
    pub used: String,
    /// Raised with every change that an older program would misread.
    pub number: u64,
}

impl Format {
    /// Refuses data of another format, and writes the number where there is no data yet, with a link that has
    /// the [transactions](crate::transaction). `url` is shown in errors.
    pub(crate) async fn check(&self, link: &Link, url: &str) -> Result<(), ConnectError> {
        let unreachable = |error: LinkError| ConnectError::unreachable(url, error);
        let written = link.call(redis::cmd("GET").arg(&self.key)).await.map_err(unreachable)?;
        let found = match &written {
            Value::Nil => {
                let used = link.call(redis::cmd("EXISTS").arg(&self.used)).await.map_err(unreachable)?;
                if used == Value::Int(1) { 1 } else { self.number }
            }
            Value::BulkString(number) => String::from_utf8_lossy(number).parse().unwrap_or(0),
            _ => 0,
        };
        if found != self.number {
            return Err(ConnectError::Format { what: self.what, found, read: self.number });
        }
        if written == Value::Nil {
            // Only then: a full Redis refuses it, although a server may start on its data.
            let mut write = transaction::call(transaction::NUMBER, &self.key);
            link.eval(write.arg(self.number), false).await.map_err(unreachable)?;
        }
        Ok(())
    }
}
