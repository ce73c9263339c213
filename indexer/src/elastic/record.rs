//! Takes transitions: one document each, and the newest of each message as the message itself. The payload that comes
//! with a first one is a document of its own.
//!
//! An event is rejected when one of its documents can never be; the others may be there.

use super::Elastic;
use super::bulk::{Action, Bulk, External, Target};
use super::document::{Current, Historic, Payload, flaw, transition_key};
use crate::fold::message_key;
use crate::store::{HistoryError, Rejected};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use tallystone_model::Recorded;

pub(super) async fn record(elastic: &Elastic, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
    let recorded = write(elastic, events).await;
    if let Err(HistoryError::Unavailable(_)) = &recorded {
        elastic.templates.doubt().await;
    }
    recorded
}

async fn write(elastic: &Elastic, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
    elastic.templates.ensure(elastic).await?;
    let mut rejected: BTreeMap<usize, String> = BTreeMap::new();
    let mut bulk = Bulk::default();
    let mut messages = Messages::of(gather(elastic, events, &mut bulk, &mut rejected), events);
    // One round, unless a newest event can never be written: then it is the next one's turn.
    loop {
        messages.push_newest(elastic, events, &mut bulk);
        for refused in std::mem::take(&mut bulk).send(&elastic.link, &[]).await? {
            rejected.entry(refused.number).or_insert(refused.why);
        }
        messages.keep_rejected(&rejected);
        if messages.spans.is_empty() {
            break;
        }
    }
    Ok(rejected.into_iter().map(|(index, why)| Rejected { index, why }).collect())
}

/// The bodies of the requests that would write these events where none is refused.
pub(super) fn requests(elastic: &Elastic, events: &[Recorded]) -> Vec<Bytes> {
    let mut bulk = Bulk::default();
    let told = gather(elastic, events, &mut bulk, &mut BTreeMap::new());
    Messages::of(told, events).push_newest(elastic, events, &mut bulk);
    bulk.requests()
}

/// Everything but the messages themselves; answers the numbers of the events that are told of.
fn gather(
    elastic: &Elastic,
    events: &[Recorded],
    bulk: &mut Bulk,
    rejected: &mut BTreeMap<usize, String>,
) -> Vec<usize> {
    let mut told = Vec::with_capacity(events.len());
    for (number, recorded) in events.iter().enumerate() {
        let at_ms = recorded.event.at_ms;
        let day = match (flaw(recorded), elastic.names.day(at_ms)) {
            (None, Some(day)) => day,
            (flaw, _) => {
                rejected.insert(number, flaw.unwrap_or_else(|| format!("at_ms {at_ms} has no day")));
                continue;
            }
        };
        let key = message_key(recorded);
        let target = Target { index: &day, id: &transition_key(&key, recorded.event.version), version: None };
        bulk.push(number, &Action::Create(target), Some(&Historic::of(recorded)));
        if let Some(payload) = Payload::of(recorded) {
            let target = Target { index: &elastic.names.payload, id: &key, version: None };
            bulk.push(number, &Action::Create(target), Some(&payload));
        }
        told.push(number);
    }
    told
}

/// The events by message: of those given together, only the newest is written as the message.
struct Messages {
    /// The numbers of the events: those of one message together, the newest last.
    order: Vec<usize>,
    /// Of each message, where in `order` they are.
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

    fn push_newest(&self, elastic: &Elastic, events: &[Recorded], bulk: &mut Bulk) {
        for span in &self.spans {
            let number = self.newest(span);
            let version = External::version(events[number].event.version.into());
            let target = Target { index: &elastic.names.current, id: &message_key(&events[number]), version };
            bulk.push(number, &Action::Index(target), Some(&Current::of(&events[number])));
        }
    }

    /// Only the messages whose newest event was rejected; of those, the events that were not.
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
