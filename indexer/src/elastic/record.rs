//! Writes events: one document per transition, the newest event of each message as the message, and the payload that
//! comes with a first event as a separate document.
//!
//! An event is rejected when one of its documents can never be written. Its other documents may still be written.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::document::{CurrentDocument, HistoricDocument, PayloadDocument, flaw, transition_key};
use super::places::EventIndices;
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
    let placed = Placed::of(cluster, events, &mut rejected).await?;
    placed.push_transitions(&mut bulk);
    let mut messages = Messages::of(placed.accepted(), events);
    // One round is enough, unless the newest event of a message is rejected. Then the next round writes the previous one.
    loop {
        messages.push_newest(&placed, &mut bulk);
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
pub(super) async fn requests(cluster: &Cluster, events: &[Recorded]) -> Result<Vec<Bytes>, HistoryError> {
    let mut bulk = Bulk::default();
    let placed = Placed::of(cluster, events, &mut BTreeMap::new()).await?;
    placed.push_transitions(&mut bulk);
    Messages::of(placed.accepted(), events).push_newest(&placed, &mut bulk);
    Ok(bulk.requests())
}

/// The events of one call that the server can hold, by their numbers in it, and where their documents belong.
struct Placed<'a> {
    events: BTreeMap<usize, (&'a Recorded, EventIndices<'a>)>,
}

impl<'a> Placed<'a> {
    async fn of(
        cluster: &'a Cluster,
        events: &'a [Recorded],
        rejected: &mut BTreeMap<usize, String>,
    ) -> Result<Placed<'a>, HistoryError> {
        let mut numbers = Vec::with_capacity(events.len());
        for (number, recorded) in events.iter().enumerate() {
            match flaw(recorded) {
                None => numbers.push(number),
                Some(flaw) => drop(rejected.insert(number, flaw)),
            }
        }
        let accepted: Vec<&Recorded> = numbers.iter().map(|number| &events[*number]).collect();
        let places = cluster.places_of(&accepted).await?;
        Ok(Placed { events: numbers.into_iter().zip(accepted.into_iter().zip(places)).collect() })
    }

    fn accepted(&self) -> Vec<usize> {
        self.events.keys().copied().collect()
    }

    /// Adds the documents of transitions and payloads.
    fn push_transitions(&self, bulk: &mut Bulk) {
        for (number, (recorded, place)) in &self.events {
            let key = message_key(recorded);
            let id = transition_key(&key, recorded.event.version);
            let target = Target { index: &place.transitions, id: &id, version: None };
            bulk.push(*number, &Action::Create(target), Some(&HistoricDocument::of(recorded)));
            if let Some(payload) = PayloadDocument::of(recorded) {
                // An errored message may keep more of its payload than others: the longest part stays, whichever comes first.
                let version =
                    ExternalVersion::above(recorded.event.payload.as_ref().map_or(0, |bytes| bytes.len() as u64));
                let target = Target { index: &place.payloads(), id: &key, version };
                bulk.push(*number, &Action::Index(target), Some(&payload));
            }
        }
    }

    /// Adds the document of the message after one event.
    fn push_message(&self, number: usize, bulk: &mut Bulk) {
        let Some((recorded, place)) = self.events.get(&number) else { return };
        let version = ExternalVersion::of(recorded.event.version.into());
        let target = Target { index: &place.messages, id: &message_key(recorded), version };
        bulk.push(number, &Action::Index(target), Some(&CurrentDocument::of(recorded)));
    }
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

    fn push_newest(&self, placed: &Placed<'_>, bulk: &mut Bulk) {
        for span in &self.spans {
            placed.push_message(self.newest(span), bulk);
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
