//! Removes what is past the retention: whole indices, and from indices with messages that are still in their queues, the
//! messages that are gone, one by one.
//!
//! An index is dropped in steps: claim it, block writes to it, verify that it has nothing to keep, delete it, give the claim
//! back. No write can come between the last two. A program that dies in between leaves the claim; the next one continues.
//! An index that cannot be read keeps no other one from being dropped.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::claims::{ClaimState, claim, claim_state, release};
use super::cluster::Cluster;
use super::filter::Filter;
use super::group::IndexGroup;
use super::hours::{has_match, last_end};
use super::index_list::{ListedIndex, list};
use super::names::{HOUR_MS, Kind};
use super::response::SearchResponse;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// Indices dropped in one step.
const INDICES: usize = 20;
/// Messages removed in one step.
const MESSAGES: usize = 2_000;
/// An index is dropped at the earliest when its first day is past the retention. From a day later, messages are removed from
/// it one by one: by then most of them would have been dropped with it.
const DAY_HOURS: u64 = 24;

pub(super) async fn prune(cluster: &Cluster, now_ms: u64) -> Result<bool, HistoryError> {
    let mut step = PruneStep::default();
    for group in &cluster.groups {
        let past = Past { cluster, group, now_ms, before_ms: now_ms.saturating_sub(group.retention_ms) };
        for kind in [Kind::Transitions, Kind::Messages] {
            match list(&cluster.client, &group.names, kind).await {
                Ok(indices) => past.prune(kind, &indices, &mut step).await,
                Err(error) => step.note(Err(error)),
            }
        }
    }
    step.failed.map_or(Ok(step.more), Err)
}

/// What one step has left.
#[derive(Default)]
struct PruneStep {
    more: bool,
    /// The first error.
    failed: Option<HistoryError>,
}

impl PruneStep {
    fn note(&mut self, done: Result<bool, HistoryError>) {
        match done {
            Ok(more) => self.more |= more,
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }
}

/// What of one group is past its retention.
struct Past<'a> {
    cluster: &'a Cluster,
    group: &'a IndexGroup,
    now_ms: u64,
    /// Unix ms.
    before_ms: u64,
}

impl Past<'_> {
    /// Drops indices that have nothing to keep. From old ones that have, removes the messages that are gone.
    async fn prune(&self, kind: Kind, indices: &[ListedIndex], step: &mut PruneStep) {
        let mut dropped = 0;
        for index in indices {
            if self.group.names.is_undated(&index.name) {
                step.note(self.remove_messages(index).await);
            } else if self.is_past(index.begins + DAY_HOURS) {
                if dropped == INDICES {
                    return step.note(Ok(true));
                }
                match self.drop_index(kind, index).await {
                    Ok(true) => dropped += 1,
                    Ok(false) if kind == Kind::Messages && self.is_past(index.begins + 2 * DAY_HOURS) => {
                        step.note(self.remove_messages(index).await);
                    }
                    Ok(false) => {}
                    Err(error) => step.note(Err(error)),
                }
            }
        }
    }

    fn is_past(&self, hour: u64) -> bool {
        hour * HOUR_MS <= self.before_ms
    }

    /// Drops the index unless it has something to keep. `false`: it stays, for now at least.
    async fn drop_index(&self, kind: Kind, index: &ListedIndex) -> Result<bool, HistoryError> {
        if index.is_closed {
            return self.drop_unread(kind, index).await;
        }
        match self.drop_verified(kind, index).await {
            Err(error) if !self.drop_unread(kind, index).await? => Err(error),
            Err(_) => Ok(true),
            done => done,
        }
    }

    /// Drops transitions without reading them if all hours of their index are past. No event is written to it any more that
    /// would be kept.
    async fn drop_unread(&self, kind: Kind, index: &ListedIndex) -> Result<bool, HistoryError> {
        let days = u64::from(self.group.rollover.days);
        // What no choice names, programs wrote that had an index for each day.
        if kind != Kind::Transitions || !self.is_past(index.begins + days * DAY_HOURS) {
            return Ok(false);
        }
        let end = last_end(&self.cluster.client, &self.group.names, kind, &index.name).await?;
        let is_past = end.is_none_or(|end| self.is_past(end));
        if is_past {
            self.delete(kind, &index.name).await?;
        }
        Ok(is_past)
    }

    async fn drop_verified(&self, kind: Kind, index: &ListedIndex) -> Result<bool, HistoryError> {
        let (client, names) = (&self.cluster.client, &self.group.names);
        let to_keep = self.to_keep(kind);
        let state = claim_state(client, names, &self.cluster.claims, &index.name, self.now_ms).await?;
        let is_of_another = state == ClaimState::Taken;
        if is_of_another || (state == ClaimState::Free && has_match(client, &index.name, &to_keep).await?) {
            return Ok(false);
        }
        if !claim(client, names, &index.name, state, self.now_ms).await? {
            return Ok(false);
        }
        if matches!(state, ClaimState::Abandoned(_)) {
            // The server acknowledges only a new block.
            self.unblock(&index.name).await?;
        }
        let drops = self.block(&index.name).await? && !has_match(client, &index.name, &to_keep).await?;
        if drops {
            self.delete(kind, &index.name).await?;
        } else {
            self.unblock(&index.name).await?;
        }
        release(client, names, &index.name).await?;
        Ok(drops)
    }

    /// What an index must not have to be dropped.
    fn to_keep(&self, kind: Kind) -> Value {
        let younger = |field: &str| Filter::default().range(field, Some(self.before_ms), None).query();
        match kind {
            Kind::Transitions => younger("at_ms"),
            Kind::Messages => {
                let any = [Filter::default().term("gone", false).query(), younger("changed_at_ms")];
                json!({ "bool": { "should": any, "minimum_should_match": 1 } })
            }
        }
    }

    /// Blocks writes and waits for those in flight. `false`: the index is gone.
    async fn block(&self, index: &str) -> Result<bool, HistoryError> {
        let path = format!("{index}/_block/write");
        let reply = self.cluster.client.send(Method::Put, &path, &[], None).await?;
        if reply.status == 404 {
            return Ok(false);
        }
        let blocked: Blocked = reply.read()?;
        if !blocked.shards_acknowledged {
            return Err(HistoryError::Unavailable(format!("the shards of {index} do not block writes")));
        }
        Ok(true)
    }

    async fn unblock(&self, index: &str) -> Result<(), HistoryError> {
        let path = format!("{index}/_settings");
        let settings = json!({ "index.blocks.write": null });
        self.cluster.client.send(Method::Put, &path, &[], Some(&settings)).await?.done_or_missing()
    }

    /// Payloads first: an index of messages that remains is found again.
    async fn delete(&self, kind: Kind, index: &str) -> Result<(), HistoryError> {
        let payloads = self.group.names.payloads_of(index);
        let indices = if kind == Kind::Messages { vec![payloads.as_str(), index] } else { vec![index] };
        for index in &indices {
            let query = [("ignore_unavailable", "true")];
            self.cluster.client.send(Method::Delete, index, &query, None).await?.done()?;
        }
        tracing::info!(?indices, "deleted indices that are older than the retention");
        Ok(())
    }

    /// Removes messages that are gone, with their payloads.
    async fn remove_messages(&self, index: &ListedIndex) -> Result<bool, HistoryError> {
        let payloads = self.group.names.payloads_of(&index.name);
        let filter = Filter::default().term("gone", true).range("changed_at_ms", None, Some(self.before_ms));
        let body = json!({
            "size": MESSAGES,
            "track_total_hits": false,
            "query": filter.query(),
            "sort": ["_doc"],
            "_source": ["version"],
        });
        let found: SearchResponse<MessageVersion> = self.cluster.client.search(&index.name, &body).await?;
        let found = found.hits();
        let mut bulk = Bulk::default();
        for (number, hit) in found.iter().enumerate() {
            let version = ExternalVersion::of(hit.source.version.into());
            bulk.push(number, &Action::Delete(Target { index: &index.name, id: &hit.id, version }), None::<&()>);
            // The id of a document names one message for ever, so no newer message can have this payload.
            let payload = Target { index: &payloads, id: &hit.id, version: None };
            bulk.push(number, &Action::Delete(payload), None::<&()>);
        }
        // The refresh keeps the next step from finding the same messages.
        if let Some(refused) = bulk.send(&self.cluster.client, &[("refresh", "true")]).await?.first() {
            return Err(HistoryError::Failed(refused.why.clone()));
        }
        Ok(found.len() == MESSAGES)
    }
}

#[derive(Deserialize)]
struct Blocked {
    shards_acknowledged: bool,
}

#[derive(Deserialize)]
struct MessageVersion {
    version: u32,
}
