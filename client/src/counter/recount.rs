//! Audits and recounts of counters (N12). Times are Unix milliseconds by the store's clock.

use super::{CounterClient, IdempotencyToken};
use crate::calls::rpc;
use crate::error::{Refused, Result};
use crate::wire::from_wire;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;

/// What an audit of a counter has found so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// The count of the last rollup when the audit began.
    pub count: i64,
    /// What the count must be: the sum of the adds after the last clear, and `adjusted`. A sum beyond the range of `i64` is the
    /// nearest `i64`.
    pub recounted: i64,
    /// The adjustments of earlier recounts since the last clear.
    pub adjusted: i64,
    /// `recounted` is the count. Meaningful on the last page.
    pub agrees: bool,
    /// The adds and clears that were read.
    pub events: u64,
    /// The audit reads the events before this time.
    pub exact_to_ms: u64,
    /// The audit has read the events before this time.
    pub audited_to_ms: u64,
    /// The number of recounts of the counter.
    pub epoch: u32,
    /// None of the events can have been dropped. Meaningful on the last page.
    pub complete: bool,
    /// Events before this time may have been dropped.
    pub kept_from_ms: u64,
    /// The audit, for [`NewRecount::from_events`]; empty before the last page.
    #[serde(skip)]
    pub audit_token: String,
    /// The token of the next page; empty on the last one.
    #[serde(skip)]
    pub next_page_token: String,
}

/// By what an audit groups adds (N20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditGrouping {
    /// By [`NewAdd::source`](crate::NewAdd::source).
    Source,
    /// By [`NewAdd::event_item_key`](crate::NewAdd::event_item_key).
    EventItemKey,
}

/// Adds with the same source or item key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditGroup {
    /// The source or the item key; empty: of the adds that have none.
    pub key: String,
    /// The number of adds.
    pub adds: u64,
    /// Their sum. A sum beyond the range of `i64` is the nearest `i64`.
    pub sum: i64,
}

/// The groups of the pages of an audit so far.
#[derive(Default)]
struct Groups(BTreeMap<String, (u64, i64)>);

impl Groups {
    fn take(&mut self, page: &mut wire::AuditCounterResponse) {
        if page.groups_cleared {
            self.0.clear();
        }
        for wire::AuditGroup { key, adds, sum } in page.groups.drain(..) {
            let group = self.0.entry(key).or_default();
            *group = (group.0.saturating_add(from_wire(adds)), group.1.saturating_add(sum));
        }
    }

    /// The largest sums first, then in the order of the keys.
    fn into_list(self) -> Vec<AuditGroup> {
        let group = |(key, (adds, sum))| AuditGroup { key, adds, sum };
        let mut list: Vec<AuditGroup> = self.0.into_iter().map(group).collect();
        list.sort_by_key(|group| std::cmp::Reverse(group.sum));
        list
    }
}

/// What to replace a count with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecount {
    audit_token: String,
    adjustment: i64,
    reason: String,
    token: String,
    accepts_dropped_events: bool,
}

impl NewRecount {
    /// Adds to the present count. The reason has 1 to 256 bytes.
    pub fn of_count(adjustment: i64, reason: impl Into<String>) -> Self {
        let token = IdempotencyToken::now().token;
        NewRecount {
            audit_token: String::new(),
            adjustment,
            reason: reason.into(),
            token,
            accepts_dropped_events: false,
        }
    }

    /// The count becomes the sum of the events, which this finished audit has found, with an adjustment.
    pub fn from_events(audit: &Audit, adjustment: i64, reason: impl Into<String>) -> Self {
        NewRecount { audit_token: audit.audit_token.clone(), ..NewRecount::of_count(adjustment, reason) }
    }

    /// Sets the token, with which a repeated call gets the answer of the first one.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = token.into();
        self
    }

    /// Replaces the count although events of it may have been dropped.
    #[must_use]
    pub fn accept_dropped_events(mut self, accept: bool) -> Self {
        self.accepts_dropped_events = accept;
        self
    }
}

/// A recount of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recount {
    /// The number of the epoch that it has begun.
    pub epoch: u32,
    /// When it took effect.
    pub recounted_ms: u64,
    /// Both counts include the events before this time.
    pub exact_to_ms: u64,
    /// The count before.
    pub old_count: i64,
    /// The count since then.
    pub new_count: i64,
    /// What was added to the sum of the events or to the old count.
    pub adjustment: i64,
    /// The new count is the sum of the events and all adjustments; otherwise, the old count and this adjustment.
    pub from_events: bool,
    /// Why the count was replaced.
    pub reason: String,
    /// The token of the call.
    pub token: String,
}

impl Audit {
    fn from_wire(audit: wire::AuditCounterResponse) -> Self {
        Audit {
            count: audit.count,
            recounted: audit.recounted,
            adjusted: audit.adjusted,
            agrees: audit.agrees,
            events: from_wire(audit.events),
            exact_to_ms: from_wire(audit.exact_to_ms),
            audited_to_ms: from_wire(audit.audited_to_ms),
            epoch: audit.epoch,
            complete: audit.complete,
            kept_from_ms: from_wire(audit.kept_from_ms),
            audit_token: audit.audit_token,
            next_page_token: audit.next_page_token,
        }
    }
}

impl Recount {
    fn from_wire(recount: wire::Recount) -> Self {
        Recount {
            epoch: recount.epoch,
            recounted_ms: from_wire(recount.recounted_ms),
            exact_to_ms: from_wire(recount.exact_to_ms),
            old_count: recount.old_count,
            new_count: recount.new_count,
            adjustment: recount.adjustment,
            from_events: recount.from_events,
            reason: recount.reason,
            token: recount.token,
        }
    }
}

impl CounterClient {
    /// Counts the events of a counter again, and compares the sum with its count. Returns the finished audit.
    pub async fn audit(&self, namespace: &str, counter: &str) -> Result<Audit> {
        let mut audit = self.audit_page(namespace, counter, "").await?;
        while !audit.next_page_token.is_empty() {
            audit = self.audit_page(namespace, counter, &audit.next_page_token).await?;
        }
        Ok(audit)
    }

    /// Audits a counter as [`audit`](CounterClient::audit) does, and groups the adds after its last clear (N20). The largest sums
    /// are first. All groups are in memory: there may be as many as adds.
    pub async fn audit_by(
        &self,
        namespace: &str,
        counter: &str,
        grouping: AuditGrouping,
    ) -> Result<(Audit, Vec<AuditGroup>)> {
        let (mut groups, mut page_token) = (Groups::default(), String::new());
        loop {
            let mut page = self.call_audit(namespace, counter, &page_token, Some(grouping)).await?;
            groups.take(&mut page);
            if page.next_page_token.is_empty() {
                return Ok((Audit::from_wire(page), groups.into_list()));
            }
            page_token = page.next_page_token;
        }
    }

    /// One page of an audit. The first page has the empty token.
    pub async fn audit_page(&self, namespace: &str, counter: &str, page_token: &str) -> Result<Audit> {
        self.call_audit(namespace, counter, page_token, None).await.map(Audit::from_wire)
    }

    async fn call_audit(
        &self,
        namespace: &str,
        counter: &str,
        page_token: &str,
        grouping: Option<AuditGrouping>,
    ) -> Result<wire::AuditCounterResponse> {
        let group_by = match grouping {
            None => wire::AuditGrouping::Unspecified,
            Some(AuditGrouping::Source) => wire::AuditGrouping::Source,
            Some(AuditGrouping::EventItemKey) => wire::AuditGrouping::EventItemKey,
        };
        let request = wire::AuditCounterRequest {
            namespace: namespace.to_owned(),
            counter: counter.to_owned(),
            page_token: page_token.to_owned(),
            group_by: group_by.into(),
        };
        Ok(self.calls.read(Duration::ZERO, request, rpc!(self.counters, audit_counter)).await?.response)
    }

    /// Replaces the count of a counter. The old count and the reason are kept ([`recounts`](CounterClient::recounts)).
    pub async fn recount(&self, namespace: &str, counter: &str, recount: NewRecount) -> Result<Recount> {
        let request = wire::RecountCounterRequest {
            namespace: namespace.to_owned(),
            counter: counter.to_owned(),
            audit_token: recount.audit_token,
            adjustment: recount.adjustment,
            reason: recount.reason,
            token: recount.token,
            accept_dropped_events: recount.accepts_dropped_events,
        };
        let response = self.call(request, rpc!(self.counters, recount_counter)).await?;
        let recount = response.recount.ok_or_else(|| Refused::protocol("no recount"))?;
        Ok(Recount::from_wire(recount))
    }

    /// Lists the recounts of a counter, the oldest first: the latest 32 since it was created or deleted.
    pub async fn recounts(&self, namespace: &str, counter: &str) -> Result<Vec<Recount>> {
        let request = wire::ListRecountsRequest { namespace: namespace.to_owned(), counter: counter.to_owned() };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.counters, list_recounts)).await?.response;
        Ok(response.recounts.into_iter().map(Recount::from_wire).collect())
    }
}
