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
use std::collections::{BTreeMap, HashMap};
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
    let mut newest = Newest::default();
    gather(elastic, events, &mut bulk, &mut newest, &mut rejected);
    // One round, unless a newest event can never be written: then it is the next one's turn.
    loop {
        push_newest(elastic, events, &newest, &mut bulk);
        for refused in std::mem::take(&mut bulk).send(&elastic.link, &[]).await? {
            rejected.entry(refused.number).or_insert(refused.why);
        }
        newest.retain(|(_, numbers)| numbers.last().is_some_and(|number| rejected.contains_key(number)));
        if newest.is_empty() {
            break;
        }
        for (_, numbers) in &mut newest {
            numbers.retain(|number| !rejected.contains_key(number));
        }
    }
    Ok(rejected.into_iter().map(|(index, why)| Rejected { index, why }).collect())
}

/// The bodies of the requests that would write these events where none is refused.
pub(super) fn requests(elastic: &Elastic, events: &[Recorded]) -> Vec<Bytes> {
    let (mut bulk, mut newest) = (Bulk::default(), Newest::default());
    gather(elastic, events, &mut bulk, &mut newest, &mut BTreeMap::new());
    push_newest(elastic, events, &newest, &mut bulk);
    bulk.requests()
}

/// Of each message, its events by number, the newest last: of those given together, only that one is written as the
/// message.
type Newest = Vec<(String, Vec<usize>)>;

/// Everything but the messages themselves.
fn gather(
    elastic: &Elastic,
    events: &[Recorded],
    bulk: &mut Bulk,
    newest: &mut Newest,
    rejected: &mut BTreeMap<usize, String>,
) {
    let mut messages: HashMap<String, Vec<usize>> = HashMap::new();
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
        messages.entry(key).or_default().push(number);
    }
    newest.extend(messages);
    for (_, numbers) in newest {
        numbers.sort_by_key(|number| events[*number].event.version);
    }
}

fn push_newest(elastic: &Elastic, events: &[Recorded], newest: &Newest, bulk: &mut Bulk) {
    for (key, numbers) in newest {
        let Some(number) = numbers.last().copied() else { continue };
        let version = External::version(events[number].event.version.into());
        let target = Target { index: &elastic.names.current, id: key, version };
        bulk.push(number, &Action::Index(target), Some(&Current::of(&events[number])));
    }
}
