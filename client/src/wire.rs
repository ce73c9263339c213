//! How ids, numbers and the results of items are sent and read.

use crate::error::Refused;
use tallystone_proto::RpcStatus;

/// A new id (a UUIDv7): unique, and sorted by time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Milliseconds for the wire. A number that does not fit becomes the largest, which the server refuses.
pub(crate) fn wire_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A count or the size of a page for the wire, limited likewise.
pub(crate) fn wire_count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Milliseconds or counts from the wire; a negative number becomes 0.
pub(crate) fn from_wire(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What one item's result says.
pub(crate) fn outcome<O, W>(outcome: Option<O>) -> Result<W, Refused>
where
    Result<W, RpcStatus>: From<O>,
{
    let outcome = outcome.ok_or_else(|| Refused::protocol("a result without an outcome"))?;
    Result::from(outcome).map_err(Refused::from_item)
}
