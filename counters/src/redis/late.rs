//! Late retries, of events that have left Redis: the archive answers them (N15).

use super::RedisNamespace;
use crate::config::EventArchive;
use crate::log::{Appended, Change, NewEvent};
use crate::namespace::Placement;
use crate::refusal::Refusal;
use tallystone_archive::{EventKey, Found};

impl RedisNamespace {
    /// The answers to late retries. What the archive does not have of its time, it never gets: the event is certainly not counted.
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
        let keys: Vec<EventKey> = late.iter().map(key).collect();
        let (found, from_ms) = match self.find_keys(keys).await {
            Ok(found) => found,
            Err(refusal) => return vec![Err(refusal); late.len()],
        };
        let duplicate = |event: &NewEvent| Appended { time_ms: event.time_ms.unwrap_or_default(), duplicate: true };
        let answered = |(event, found): (&NewEvent, Option<Found>)| match (found, event.change) {
            // Retention has deleted it, or it is from before the archive.
            (None, _) if event.time_ms.unwrap_or_default() < from_ms => Err(Refusal::TokenExpired),
            (None, _) => Err(Refusal::TooOld),
            (Some(found), change) => match (found.delta, change) {
                (None, Change::Clear) => Ok(duplicate(event)),
                (Some(counted), Change::Add(delta)) if counted == delta && has_labels(&found, event) => {
                    Ok(duplicate(event))
                }
                _ => Err(Refusal::TokenConflict),
            },
        };
        late.iter().zip(found).map(answered).collect()
    }

    /// What the archive has of these events, and from when on it has all of them (Unix ms).
    async fn find_keys(&self, keys: Vec<EventKey>) -> Result<(Vec<Option<Found>>, u64), Refusal> {
        let EventArchive { archive, reads, .. } = self.event_archive()?.clone();
        let (count, tag, slice_ms) = (keys.len(), self.tag.clone(), self.slice_ms());
        let find = async move {
            let found = archive.find(&tag, slice_ms, &keys).await?;
            let is_all = found.iter().all(Option::is_some);
            let first_ms = if is_all { Some(0) } else { archive.first_slice_ms(&tag).await? };
            Ok((found, first_ms.unwrap_or(u64::MAX)))
        };
        let found = reads.find(find).await;
        Ok(self.unless_new(found).await?.unwrap_or_else(|| (vec![None; count], u64::MAX)))
    }
}

/// Whether an add was counted with the labels of its retry.
fn has_labels(found: &Found, retry: &NewEvent) -> bool {
    let of = |label: &Option<Box<str>>, wanted: &str| label.as_deref().unwrap_or_default() == wanted;
    of(&found.source, retry.labels.source()) && of(&found.event_item_key, retry.labels.event_item_key())
}
