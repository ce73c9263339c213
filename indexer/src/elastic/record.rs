//! Writes events: one document per transition, the newest event of each message as the message, and the payload that
//! comes with a first event as a separate document.
//!
//! An event is rejected when one of its documents can never be written. Its other documents may still be written.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::document::{CurrentDocument, HistoricDocument, PayloadDocument, flaw, transition_key};
use crate::fold::message_key;
use crate::store::{HistoryError, Rejected};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use tallystone_model::Recorded;

pub(super) async fn record(cluster: &Cluster, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
    cluster.write(write(cluster, events)).await
}

async fn write(cluster: &Cluster, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
    let mut rejected: BTreeMap<usize, String> = BTreeMap::new();
    let mut bulk = Bulk::default();
    let mut messages = Messages::of(push_transitions(cluster, events, &mut bulk, &mut rejected), events);
    // One round is enough, unless the newest event of a message is rejected. Then the next round writes the one before.
    loop {
        messages.push_newest(cluster, events, &mut bulk);
        for refused in std::mem::take(&mut bulk).send(&cluster.client, &[]).await? {
            rejected.entry(refused.number).or_insert(refused.why);
        }
        messages.keep_rejected(&rejected);
        if messages.spans.is_empty() {
            break;
        }
    }
    Ok(rejected.into_iter().map(|(index, why)| Rejected { index, why }).collect())
}

/// The bodies of the requests that write these events if the server refuses none.
pub(super) fn requests(cluster: &Cluster, events: &[Recorded]) -> Vec<Bytes> {
    let mut bulk = Bulk::default();
    let accepted = push_transitions(cluster, events, &mut bulk, &mut BTreeMap::new());
    Messages::of(accepted, events).push_newest(cluster, events, &mut bulk);
    bulk.requests()
}

/// Adds the documents of transitions and payloads. Returns the indices of the events that are not rejected.
fn push_transitions(
    cluster: &Cluster,
    events: &[Recorded],
    bulk: &mut Bulk,
    rejected: &mut BTreeMap<usize, String>,
) -> Vec<usize> {
    let mut accepted = Vec::with_capacity(events.len());
    for (number, recorded) in events.iter().enumerate() {
        let at_ms = recorded.event.at_ms;
        let day = match (flaw(recorded), cluster.names.day(at_ms)) {
            (None, Some(day)) => day,
            (flaw, _) => {
                rejected.insert(number, flaw.unwrap_or_else(|| format!("at_ms {at_ms} has no day")));
                continue;
            }
        };
        let key = message_key(recorded);
        let target = Target { index: &day, id: &transition_key(&key, recorded.event.version), version: None };
        bulk.push(number, &Action::Create(target), Some(&HistoricDocument::of(recorded)));
        if let Some(payload) = PayloadDocument::of(recorded) {
            let target = Target { index: &cluster.names.payload, id: &key, version: None };
            bulk.push(number, &Action::Create(target), Some(&payload));
        }
        accepted.push(number);
    }
    accepted
}

/// The events of one call grouped by message: only the newest event of each is written as the message.
struct Messages {
    /// Indices of events, grouped by message, each group in the order of versions.
    order: Vec<usize>,
    /// The group of each message in `order`.
    spans: Vec<Range<usize>>,
}

impl Messages {
    fn of(mut order: Vec<usize>, events: &[Recorded]) -> Messages {
        let message = |number: usize| (events[number].event.sequence, &events[number].shard);
        order.sort_by_key(|number| (message(*number), events[*number].event.version));
        let mut spans = Vec::with_capacity(order.len());
        for together in order.chunk_by(|left, right| message(*left) == message(*right)) {
            let begin = spans.last().map_or(0, |before: &Range<usize>| before.end);
            spans.push(begin..begin + together.len());
        }
        Messages { order, spans }
    }

    fn newest(&self, span: &Range<usize>) -> usize {
        self.order[span.end - 1]
    }

    fn push_newest(&self, cluster: &Cluster, events: &[Recorded], bulk: &mut Bulk) {
        for span in &self.spans {
            let number = self.newest(span);
            let version = ExternalVersion::of(events[number].event.version.into());
            let target = Target { index: &cluster.names.current, id: &message_key(&events[number]), version };
            bulk.push(number, &Action::Index(target), Some(&CurrentDocument::of(&events[number])));
        }
    }

    /// Keeps the messages whose newest event was rejected, with their events that were not.
    fn keep_rejected(&mut self, rejected: &BTreeMap<usize, String>) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.retain_mut(|span| {
            let end = span.end;
            while span.start < span.end && rejected.contains_key(&self.newest(span)) {
                span.end -= 1;
            }
            span.start < span.end && span.end < end
        });
        self.spans = spans;
    }
}
