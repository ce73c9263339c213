//! Late retries, of events that have left Redis: the archive answers them (N15).

use super::RedisNamespace;
use super::calls::of_archive;
use crate::config::EventArchive;
use crate::log::{Appended, Change, NewEvent};
use crate::namespace::Placement;
use crate::refusal::Refusal;
use tallystone_archive::{ArchiveError, EventKey, EventLookup, Found};

impl RedisNamespace {
    /// The answers to late retries. Where the archive has all events of a time and not this one, it never gets it: the event is
    /// certainly not counted. A failure of the archive concerns only the events whose answer needs what has failed.
    pub(super) async fn find_late(&self, late: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        if !self.config.archived {
            return vec![Err(Refusal::TokenExpired); late.len()];
        }
        let key = |event: &NewEvent| {
            let placement = Placement::of(&event.counter);
            EventKey {
                shard: placement.of_event(&event.token, &self.config).0,
                counter_id: placement.id(),
                time_ms: event.time_ms.unwrap_or_default(),
                token: event.token.as_str().into(),
            }
        };
        let known = match self.find_keys(late.iter().map(key).collect()).await {
            Ok(known) => known,
            Err(refusal) => return vec![Err(refusal); late.len()],
        };
        let duplicate = |event: &NewEvent| Appended { time_ms: event.time_ms.unwrap_or_default(), duplicate: true };
        let answered =
            |(event, known): (&NewEvent, Result<EventLookup, ArchiveError>)| match known.map_err(of_archive)? {
                EventLookup::TooEarly => Err(Refusal::TokenExpired),
                EventLookup::HasNot => Err(Refusal::TooOld),
                EventLookup::Has(found) => match (found.delta, event.change) {
                    (None, Change::Clear) => Ok(duplicate(event)),
                    (Some(counted), Change::Add(delta)) if counted == delta && has_labels(&found, event) => {
                        Ok(duplicate(event))
                    }
                    _ => Err(Refusal::TokenConflict),
                },
            };
        late.iter().zip(known).map(answered).collect()
    }

    /// What the archive knows of these events.
    async fn find_keys(&self, keys: Vec<EventKey>) -> Result<Vec<Result<EventLookup, ArchiveError>>, Refusal> {
        let EventArchive { archive, reads, .. } = self.event_archive()?.clone();
        let (count, tag, slice_ms) = (keys.len(), self.tag.clone(), self.slice_ms());
        let known =
            reads.find(count, |answers| async move { archive.find(&tag, slice_ms, &keys, &answers).await }).await;
        let unmarked = known.iter().find_map(|answer| match answer {
            Err(error @ ArchiveError::NoMark { .. }) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = unmarked
            && self.unless_new(Err::<(), _>(error)).await?.is_none()
        {
            return Ok(vec![Ok(EventLookup::TooEarly); count]);
        }
        Ok(known)
    }
}

/// Whether an add was counted with the labels of its retry.
fn has_labels(found: &Found, retry: &NewEvent) -> bool {
    let of = |label: &Option<Box<str>>, wanted: &str| label.as_deref().unwrap_or_default() == wanted;
    of(&found.source, retry.labels.source()) && of(&found.event_item_key, retry.labels.event_item_key())
}
