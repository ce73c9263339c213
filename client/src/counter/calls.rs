//! The calls of counters, one method per RPC.

use super::{
    Added, AddedAndCounted, Cleared, Counted, CounterClient, CounterEntry, CounterEvent, ExactTo, GlobalCount,
    Namespace, NamespaceConfig, NewAdd, NewClear, Period, Sums,
};
use crate::calls::rpc;
use crate::error::{Items, Result};
use crate::inspect::Page;
use crate::queue::items;
use crate::wire::{from_wire, outcome, wire_count, wire_ms};
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;

impl CounterClient {
    /// Adds to a counter. The same token counts once, however often it is sent.
    pub async fn add(&self, namespace: &str, add: NewAdd) -> Result<Added> {
        let request = add.into_request(namespace);
        let response = self.call(request, rpc!(self.counters, add_count)).await?;
        Ok(Added::from_wire(response))
    }

    /// Adds to counters, at most 1,000 at once.
    pub async fn add_many(&self, namespace: &str, adds: Vec<NewAdd>) -> Items<Added> {
        let (count, request) = (adds.len(), adds_request(namespace, adds));
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.counters, add_counts)).await?;
        items(count, answer, |response| response.results, |result| Ok(Added::from_wire(outcome(result.outcome)?)))
    }

    /// Adds to a counter, and reads it right after.
    pub async fn add_and_get(&self, namespace: &str, add: NewAdd) -> Result<AddedAndCounted> {
        let wire::AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key } =
            add.into_request(namespace);
        let request =
            wire::AddAndGetCountRequest { namespace, counter, delta, token, min, max, source, event_item_key };
        let response = self.call(request, rpc!(self.counters, add_and_get_count)).await?;
        Ok(AddedAndCounted::from_wire(response))
    }

    /// Adds to counters, at most 1,000 at once, and reads them right after.
    pub async fn add_and_get_many(&self, namespace: &str, adds: Vec<NewAdd>) -> Items<AddedAndCounted> {
        let (count, wire::AddCountsRequest { namespace, adds }) = (adds.len(), adds_request(namespace, adds));
        let request = wire::AddAndGetCountsRequest { namespace, adds };
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.counters, add_and_get_counts)).await?;
        items(
            count,
            answer,
            |response| response.results,
            |result| Ok(AddedAndCounted::from_wire(outcome(result.outcome)?)),
        )
    }

    /// Reads a count, and the time up to which it is exact.
    pub async fn get(&self, namespace: &str, counter: &str) -> Result<Counted> {
        self.read_one(namespace, counter, None).await
    }

    /// Reads a count that is exact to a time or later; waits for that if need be.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) with the reason `NOT_EXACT_YET` if the time to wait is over, or is too short.
    pub async fn get_exact(&self, namespace: &str, counter: &str, to: ExactTo) -> Result<Counted> {
        self.read_one(namespace, counter, Some(to)).await
    }

    async fn read_one(&self, namespace: &str, counter: &str, to: Option<ExactTo>) -> Result<Counted> {
        let (namespace, counter, (min_exact_to_ms, wait_ms)) =
            (namespace.to_owned(), counter.to_owned(), ExactTo::into_wire(to));
        let request = wire::GetCountRequest { namespace, counter, min_exact_to_ms, wait_ms, global: false };
        let response = self.calls.read(waited(wait_ms), request, rpc!(self.counters, get_count)).await?.response;
        Ok(Counted::from_wire(response)?)
    }

    /// Reads counters, at most 1,000 at once.
    pub async fn get_many(&self, namespace: &str, counters: Vec<String>) -> Items<Counted> {
        self.read_many(namespace, counters, None).await
    }

    /// Reads counters, at most 1,000 at once, each exact to a time or later. The wait is that for all of them together. A
    /// counter that is not exact in time is refused as `NOT_EXACT_YET`.
    pub async fn get_many_exact(&self, namespace: &str, counters: Vec<String>, to: ExactTo) -> Items<Counted> {
        self.read_many(namespace, counters, Some(to)).await
    }

    async fn read_many(&self, namespace: &str, counters: Vec<String>, to: Option<ExactTo>) -> Items<Counted> {
        let (namespace, count, (min_exact_to_ms, wait_ms)) =
            (namespace.to_owned(), counters.len(), ExactTo::into_wire(to));
        let request = wire::GetCountsRequest { namespace, counters, min_exact_to_ms, wait_ms, global: false };
        let answer = self.calls.read(waited(wait_ms), request, rpc!(self.counters, get_counts)).await?;
        items(count, answer, |response| response.results, |result| Counted::from_wire(outcome(result.outcome)?))
    }

    /// Reads the count of a counter in all regions of its namespace.
    pub async fn get_global(&self, namespace: &str, counter: &str) -> Result<GlobalCount> {
        let (namespace, counter) = (namespace.to_owned(), counter.to_owned());
        let request = wire::GetCountRequest { namespace, counter, global: true, ..Default::default() };
        Ok(GlobalCount::from_wire(
            self.calls.read(Duration::ZERO, request, rpc!(self.counters, get_count)).await?.response,
        ))
    }

    /// Reads the counts of counters in all regions of their namespace, at most 1,000 at once.
    pub async fn get_many_global(&self, namespace: &str, counters: Vec<String>) -> Items<GlobalCount> {
        let (namespace, count) = (namespace.to_owned(), counters.len());
        let request = wire::GetCountsRequest { namespace, counters, global: true, ..Default::default() };
        let answer = self.calls.read(Duration::ZERO, request, rpc!(self.counters, get_counts)).await?;
        items(count, answer, |response| response.results, |result| Ok(GlobalCount::from_wire(outcome(result.outcome)?)))
    }

    /// Sets a counter to zero: removes what was added up to the time of the call. Later adds count.
    pub async fn clear(&self, namespace: &str, clear: NewClear) -> Result<Cleared> {
        let request = clear.into_request(namespace);
        let response = self.call(request, rpc!(self.counters, clear_count)).await?;
        Ok(Cleared::from_wire(response))
    }

    /// Sets counters to zero, at most 1,000 at once.
    pub async fn clear_many(&self, namespace: &str, clears: Vec<NewClear>) -> Items<Cleared> {
        let count = clears.len();
        let clears = clears.into_iter().map(NewClear::into_wire).collect();
        let request = wire::ClearCountsRequest { namespace: namespace.to_owned(), clears };
        let answer = self.calls.send(Duration::ZERO, request, rpc!(self.counters, clear_counts)).await?;
        items(count, answer, |response| response.results, |result| Ok(Cleared::from_wire(outcome(result.outcome)?)))
    }

    /// Deletes a counter: it answers like one that was never written. What was added up to the time of the call never counts
    /// again; later adds count from 0. `delete` names the counter and may have a token, as a clear has.
    pub async fn delete(&self, namespace: &str, delete: NewClear) -> Result<Cleared> {
        let wire::ClearCountRequest { namespace, counter, token } = delete.into_request(namespace);
        let request = wire::DeleteCounterRequest { namespace, counter, token };
        let wire::DeleteCounterResponse { event_time_ms, duplicate } =
            self.call(request, rpc!(self.counters, delete_counter)).await?;
        Ok(Cleared::from_wire(wire::ClearCountResponse { event_time_ms, duplicate }))
    }

    /// Lists the counters of a namespace, in no particular order. `page_size` 0: the server's default. The first page has
    /// the empty token; a page may be empty without being the last. Counters that appear meanwhile may be missing, and
    /// a counter may be listed twice.
    pub async fn list_counters(&self, namespace: &str, page_size: u32, page_token: &str) -> Result<Page<CounterEntry>> {
        let (namespace, page_token) = (namespace.to_owned(), page_token.to_owned());
        let request = wire::ListCountersRequest { namespace, page_size: wire_count(page_size), page_token };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.counters, list_counters)).await?.response;
        let items = response.counters.into_iter().map(CounterEntry::from_wire).collect();
        Ok(Page { items, next_page_token: response.next_page_token })
    }

    /// Lists what was added to a counter from `from_ms` until before `to_ms`, in the order of the events' times; both 0:
    /// within the last ten minutes. `page_size` 0: the server's default. The first page has the empty token; a page may
    /// be empty without being the last.
    pub async fn list_events(
        &self,
        namespace: &str,
        counter: &str,
        from_ms: u64,
        to_ms: u64,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<CounterEvent>> {
        let request = wire::ListEventsRequest {
            namespace: namespace.to_owned(),
            counter: counter.to_owned(),
            from_ms: wire_ms(from_ms),
            to_ms: wire_ms(to_ms),
            page_size: wire_count(page_size),
            page_token: page_token.to_owned(),
        };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.counters, list_events)).await?.response;
        let items = response.events.into_iter().map(CounterEvent::from_wire).collect();
        Ok(Page { items, next_page_token: response.next_page_token })
    }

    /// Sums the adds of a counter by minute, hour or day (N16). The sums are of whole periods, from the one that contains
    /// `from_ms` to the one that contains the millisecond before `to_ms`. `to_ms` 0: now. `from_ms` 0: the range has 60 minutes,
    /// 24 hours or 30 days. The first page has the empty token.
    ///
    /// # Errors
    /// Refused as `OVERFLOW`: the sum of a period exceeds 64 bits. Shorter periods may have smaller sums.
    pub async fn sums(
        &self,
        namespace: &str,
        counter: &str,
        period: Period,
        from_ms: u64,
        to_ms: u64,
        page_token: &str,
    ) -> Result<Sums> {
        let request = wire::GetSumsRequest {
            namespace: namespace.to_owned(),
            counter: counter.to_owned(),
            period: period.into_wire(),
            from_ms: wire_ms(from_ms),
            to_ms: wire_ms(to_ms),
            page_token: page_token.to_owned(),
        };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.counters, get_sums)).await?.response;
        Ok(Sums::from_wire(response))
    }

    /// Creates a namespace, or changes the fields that `config` sets. Adds and rollups through every server follow the
    /// change when this returns; reads through other servers follow within a second.
    pub async fn put_namespace(&self, name: &str, config: NamespaceConfig) -> Result<Namespace> {
        self.put(name, Some(config), "").await
    }

    /// Creates or replaces a namespace by a control plane's `persistence_configuration`, which is JSON with comments. What
    /// it leaves out takes the default.
    pub async fn put_persistence_configuration(&self, name: &str, json: &str) -> Result<Namespace> {
        self.put(name, None, json).await
    }

    async fn put(&self, name: &str, config: Option<NamespaceConfig>, json: &str) -> Result<Namespace> {
        let request = wire::PutNamespaceRequest {
            name: name.to_owned(),
            config: config.map(NamespaceConfig::into_wire),
            persistence_configuration: json.to_owned(),
        };
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, put_namespace)).await?.response;
        Ok(Namespace::from_wire(response.namespace))
    }

    /// Reads one namespace.
    pub async fn get_namespace(&self, name: &str) -> Result<Namespace> {
        let request = wire::GetNamespaceRequest { name: name.to_owned() };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.admin, get_namespace)).await?.response;
        Ok(Namespace::from_wire(response.namespace))
    }

    /// Lists all namespaces, in the order of their names.
    pub async fn list_namespaces(&self) -> Result<Vec<Namespace>> {
        let response = self
            .calls
            .read(Duration::ZERO, wire::ListNamespacesRequest {}, rpc!(self.admin, list_namespaces))
            .await?
            .response;
        Ok(response.namespaces.into_iter().map(|namespace| Namespace::from_wire(Some(namespace))).collect())
    }

    /// Deletes a namespace with its counters, in this incarnation: as [`get_namespace`](CounterClient::get_namespace) has
    /// read it. So a repeated call does no harm to a namespace that was created since. The call takes at least 1.5 s: when
    /// it returns, no server accepts an add or a clear for the namespace any more, though a slow one may still answer reads.
    /// The data is removed in the background.
    pub async fn delete_namespace(&self, namespace: &Namespace) -> Result<()> {
        let incarnation = Some(wire_ms(namespace.incarnation));
        let request = wire::DeleteNamespaceRequest { name: namespace.name.clone(), incarnation };
        self.call(request, rpc!(self.admin, delete_namespace)).await.map(drop)
    }

    /// A call that does not wait in the server.
    pub(super) async fn call<Req, Res, F, Fut>(&self, request: Req, rpc: F) -> Result<Res>
    where
        Req: Clone + 'static,
        Res: 'static,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        Ok(self.calls.send(Duration::ZERO, request, rpc).await?.response)
    }
}

/// How long the server may wait.
fn waited(wait_ms: i64) -> Duration {
    Duration::from_millis(from_wire(wait_ms))
}

fn adds_request(namespace: &str, adds: Vec<NewAdd>) -> wire::AddCountsRequest {
    let adds = adds.into_iter().map(NewAdd::into_wire).collect();
    wire::AddCountsRequest { namespace: namespace.to_owned(), adds }
}
