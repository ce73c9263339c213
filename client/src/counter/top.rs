//! The highest counts of a namespace (N16). Times are Unix milliseconds by the store's clock.

use super::{CounterClient, CounterEntry};
use crate::calls::rpc;
use crate::error::Result;
use crate::wire::{from_wire, wire_count};
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;

/// How long a call may wait for the server to read the counters.
const WAIT: Duration = Duration::from_secs(30);

/// The counters with the highest counts, and when they were read (N16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopCounters {
    /// The highest count first.
    pub counters: Vec<CounterEntry>,
    /// The server has read the counts from this time on.
    pub read_from_ms: u64,
    /// The server has read the counts until this time.
    pub read_to_ms: u64,
}

impl CounterClient {
    /// Lists the counters of a namespace with the highest counts, at most `limit`, from 1 to 1,000; 0: 100. `prefix`: only those
    /// whose names begin with it. Each count is that of the counter's last rollup, as it was at some time from
    /// [`read_from_ms`](TopCounters::read_from_ms) to [`read_to_ms`](TopCounters::read_to_ms). The server reads all counters of
    /// the namespace, so the call may take long if there are millions, and an answer may be some minutes old.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) with the reason `OVERLOADED`, after the repetitions, if the server has not
    /// read all of them yet.
    pub async fn top(&self, namespace: &str, prefix: &str, limit: u32) -> Result<TopCounters> {
        let (namespace, prefix) = (namespace.to_owned(), prefix.to_owned());
        let request = wire::ListTopCountersRequest { namespace, prefix, limit: wire_count(limit) };
        let response = self.calls.read(WAIT, request, rpc!(self.counters, list_top_counters)).await?.response;
        Ok(TopCounters {
            counters: response.counters.into_iter().map(CounterEntry::from_wire).collect(),
            read_from_ms: from_wire(response.read_from_ms),
            read_to_ms: from_wire(response.read_to_ms),
        })
    }
}
