//! Finds events by what identifies them: the answers to late retries.

use crate::archive::{Archive, slice_of};
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, EventKey, Found};
use crate::overlap::Later;
use crate::reader::{Opened, TRIES};
use std::collections::{BTreeMap, HashSet};

impl Archive {
    /// What the archive has of these events, in their order. It cannot know of events before its first slice. Each row group is
    /// read once, however many are in it.
    pub async fn find(
        &self,
        namespace: &str,
        slice_length_ms: u64,
        wanted: &[EventKey],
    ) -> Result<Vec<Option<Found>>, ArchiveError> {
        self.check_mark(namespace).await?;
        let mut slices: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (number, key) in wanted.iter().enumerate() {
            slices.entry(slice_of(key.time_ms, slice_length_ms)).or_default().push(number);
        }
        let mut found = vec![None; wanted.len()];
        for (slice_ms, numbers) in slices {
            let mut tries_left = TRIES;
            loop {
                tries_left -= 1;
                match self.find_in_slice(namespace, slice_ms, wanted, &numbers, &mut found).await {
                    Err(ArchiveError::Gone { .. }) if tries_left > 0 => {}
                    done => break done?,
                }
            }
        }
        Ok(found)
    }

    async fn find_in_slice(
        &self,
        namespace: &str,
        slice_ms: u64,
        wanted: &[EventKey],
        numbers: &[usize],
        found: &mut [Option<Found>],
    ) -> Result<(), ArchiveError> {
        let times: Vec<_> = numbers.iter().map(|number| wanted[*number].time_ms..wanted[*number].time_ms + 1).collect();
        let (objects, _) = self.reader.open(namespace, slice_ms, |_| &times).await?;
        for object in &objects {
            self.find_in(object, &Later::than(object, &objects), wanted, numbers, found).await?;
        }
        Ok(())
    }

    async fn find_in(
        &self,
        object: &Opened,
        later: &Later,
        wanted: &[EventKey],
        numbers: &[usize],
        found: &mut [Option<Found>],
    ) -> Result<(), ArchiveError> {
        let is_here = |key: &EventKey| {
            object.footer.spans.iter().any(|span| span.has(key.shard, key.time_ms))
                && later.leaves(key.shard, key.time_ms)
        };
        let numbers: Vec<usize> = numbers.iter().copied().filter(|number| is_here(&wanted[*number])).collect();
        for (group_number, group) in object.footer.groups.iter().enumerate() {
            let may_be = |number: &&usize| {
                let key = &wanted[**number];
                group.may_have(&key.counter_id, &(key.time_ms..key.time_ms + 1))
            };
            let numbers: Vec<usize> = numbers.iter().filter(may_be).copied().collect();
            if numbers.is_empty() {
                continue;
            }
            let ids: HashSet<_> = numbers.iter().map(|number| wanted[*number].counter_id).collect();
            let events = self.reader.events(object, group_number, move |id| ids.contains(id)).await?;
            for number in numbers {
                let key = &wanted[number];
                let is_it = |event: &&ArchivedEvent| {
                    let ArchivedEvent { shard, counter_id, time_ms, token, .. } = event;
                    (*shard, counter_id, *time_ms, token) == (key.shard, &key.counter_id, key.time_ms, &key.token)
                };
                if let Some(event) = events.iter().find(is_it) {
                    let (delta, source) = (event.delta, event.source.clone());
                    found[number] = Some(Found { delta, source, event_item_key: event.event_item_key.clone() });
                }
            }
        }
        Ok(())
    }
}
