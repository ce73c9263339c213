//! Finds events by what identifies them: the answers to late retries.

use crate::archive::{Archive, slice_of};
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, COUNTER_ID_BYTES, EventKey, EventLookup, Found};
use crate::name::ObjectName;
use crate::overlap::right;
use crate::reader::{Opened, TRIES, Unread, View};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, iter};
use std::collections::{BTreeMap, HashMap, HashSet};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

/// Slices that one call reads at once.
const SLICES_AT_ONCE: usize = 4;
/// Row groups that one call reads at once, in all slices.
const GROUPS_AT_ONCE: usize = 8;

/// Where the answers of a call go, each when it is known: the number of the event among those that are wanted, and what the archive
/// knows of it.
pub type Answers = UnboundedSender<(usize, Result<EventLookup, ArchiveError>)>;

/// The search in one slice.
struct Search<'a> {
    archive: &'a Archive,
    namespace: &'a str,
    slice_ms: u64,
    gapless_from_ms: Option<u64>,
    wanted: &'a [EventKey],
    places: &'a Semaphore,
    answers: &'a Answers,
}

/// What is not answered after one list of the slice.
struct Unanswered {
    names: Vec<ObjectName>,
    /// What they need was replaced meanwhile.
    gone: Vec<usize>,
    /// No listed object has their shard and time.
    uncovered: Vec<usize>,
}

/// An event that may be in some row groups.
struct Sought {
    groups: usize,
    failed: Option<ArchiveError>,
}

/// The events that may be in a row group, and those that are.
type GroupRead = (Vec<usize>, Result<HashMap<usize, Found>, ArchiveError>);

impl Archive {
    /// Answers what the archive knows of each of these events. Each row group is read once, however many are in it, and some at once.
    /// A failure concerns only the events whose answer needs what has failed. When `answers` is closed, the search ends.
    ///
    /// # Errors
    /// Of the mark: then nothing is answered.
    pub async fn find(
        &self,
        namespace: &str,
        slice_length_ms: u64,
        wanted: &[EventKey],
        answers: &Answers,
    ) -> Result<(), ArchiveError> {
        let gapless_from_ms = self.gapless_from_ms(namespace).await?;
        let mut slices: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (number, key) in wanted.iter().enumerate() {
            slices.entry(slice_of(key.time_ms, slice_length_ms)).or_default().push(number);
        }
        let places = &Semaphore::new(GROUPS_AT_ONCE);
        let searches = slices.into_iter().map(|(slice_ms, numbers)| {
            let search = Search { archive: self, namespace, slice_ms, gapless_from_ms, wanted, places, answers };
            async move { search.answer(numbers).await }.boxed()
        });
        let searches: Vec<BoxFuture<'_, ()>> = searches.collect();
        iter(searches).buffer_unordered(SLICES_AT_ONCE).collect::<Vec<()>>().await;
        Ok(())
    }
}

impl Search<'_> {
    /// Answers these events of the slice.
    async fn answer(&self, numbers: Vec<usize>) {
        let (mut left, mut before) = (numbers, None);
        for tries_left in (0..TRIES).rev() {
            if left.is_empty() || self.answers.is_closed() {
                return;
            }
            let Unanswered { names, gone, mut uncovered } = match self.read(&left).await {
                Ok(unanswered) => unanswered,
                Err(ArchiveError::Gone { .. }) if tries_left > 0 => {
                    before = None;
                    continue;
                }
                Err(error) => return self.fail(&left, &error),
            };
            let is_agreed = before.as_ref() == Some(&names);
            before = Some(names);
            left = gone;
            if is_agreed || tries_left == 0 {
                self.answer_uncovered(&uncovered, is_agreed).await;
            } else {
                left.append(&mut uncovered);
            }
        }
        self.fail(&left, &ArchiveError::Unavailable { why: "a slice is merged faster than it is read".to_owned() });
    }

    /// Lists the slice, and answers what its objects can answer.
    async fn read(&self, left: &[usize]) -> Result<Unanswered, ArchiveError> {
        let times: Vec<_> = left.iter().map(|number| self.wanted[*number].time_ms).map(|ms| ms..ms + 1).collect();
        let view = self.archive.reader.open(self.namespace, self.slice_ms, |_| &times).await?;
        let View { objects, unread, names, .. } = view;
        let mut unanswered = Unanswered { names, gone: Vec::new(), uncovered: Vec::new() };
        let mut sought: HashMap<usize, Sought> = HashMap::new();
        // By object, in the order in which they were written, and row group.
        let mut groups: BTreeMap<(&ObjectName, usize), (&Opened, Vec<usize>)> = BTreeMap::new();
        for number in left.iter().copied() {
            let key = &self.wanted[number];
            let object = right(&objects, key.shard, key.time_ms);
            // What is unread says nothing where a later object does.
            let may_be_right = |unread: &&Unread| {
                unread.name.times_ms().contains(&key.time_ms) && object.is_none_or(|right| right.name < unread.name)
            };
            if let Some(unread) = unread.iter().find(may_be_right) {
                self.send(number, Err(unread.error.clone()));
                continue;
            }
            let Some(object) = object else {
                unanswered.uncovered.push(number);
                continue;
            };
            let of_object = object.footer.groups.iter().enumerate();
            let may_have =
                of_object.filter(|(_, group)| group.may_have(&key.counter_id, &(key.time_ms..key.time_ms + 1)));
            let mut count = 0;
            for (group, _) in may_have {
                groups.entry((&object.name, group)).or_insert_with(|| (object, Vec::new())).1.push(number);
                count += 1;
            }
            match count {
                0 => self.send(number, Ok(EventLookup::HasNot)),
                count => drop(sought.insert(number, Sought { groups: count, failed: None })),
            }
        }
        let reads = groups.into_iter();
        let reads = reads.map(|((_, group), (object, numbers))| self.read_group(object, group, numbers).boxed());
        let reads: Vec<BoxFuture<'_, GroupRead>> = reads.collect();
        let mut reads = iter(reads).buffer_unordered(GROUPS_AT_ONCE);
        while let Some((numbers, read)) = reads.next().await {
            if self.answers.is_closed() {
                break;
            }
            for number in numbers {
                self.note(number, &read, &mut sought, &mut unanswered.gone);
            }
        }
        Ok(unanswered)
    }

    /// Reads a row group: what it has of these events.
    async fn read_group(&self, object: &Opened, group: usize, numbers: Vec<usize>) -> GroupRead {
        let _place = self.places.acquire().await;
        if self.answers.is_closed() {
            return (numbers, Ok(HashMap::new()));
        }
        let ids: HashSet<[u8; COUNTER_ID_BYTES]> =
            numbers.iter().map(|number| self.wanted[*number].counter_id).collect();
        let events = self.archive.reader.events(object, group, move |id| ids.contains(id)).await;
        let found = events.map(|events| {
            let by_key: HashMap<_, &ArchivedEvent> = events
                .iter()
                .map(|event| ((event.shard, &event.counter_id, event.time_ms, &event.token), event))
                .collect();
            let of_key = |number: usize| {
                let key = &self.wanted[number];
                let event = by_key.get(&(key.shard, &key.counter_id, key.time_ms, &key.token))?;
                let (source, event_item_key) = (event.source.clone(), event.event_item_key.clone());
                Some((number, Found { delta: event.delta, source, event_item_key }))
            };
            numbers.iter().filter_map(|number| of_key(*number)).collect()
        });
        (numbers, found)
    }

    /// Notes what one of the row groups that may have an event has.
    fn note(
        &self,
        number: usize,
        read: &Result<HashMap<usize, Found>, ArchiveError>,
        sought: &mut HashMap<usize, Sought>,
        gone: &mut Vec<usize>,
    ) {
        let Some(one) = sought.get_mut(&number) else { return };
        match read {
            Ok(found) => {
                if let Some(found) = found.get(&number) {
                    sought.remove(&number);
                    return self.send(number, Ok(EventLookup::Has(found.clone())));
                }
            }
            Err(error) => one.failed = Some(error.clone()),
        }
        one.groups -= 1;
        if one.groups > 0 {
            return;
        }
        match sought.remove(&number).and_then(|one| one.failed) {
            None => self.send(number, Ok(EventLookup::HasNot)),
            Some(ArchiveError::Gone { .. }) => gone.push(number),
            Some(error) => self.send(number, Err(error)),
        }
    }

    /// Answers for events whose shard and time no listed object has. Where the spans have no gaps, the list is not complete. Where
    /// that is not known, the shard had no events then, if two lists agree: a merge may hide objects from one.
    async fn answer_uncovered(&self, numbers: &[usize], is_agreed: bool) {
        if numbers.is_empty() {
            return;
        }
        // After the list: retention may have deleted the slice before.
        let first_ms = match self.archive.first_slice_ms(self.namespace).await {
            Ok(first_ms) => first_ms.unwrap_or(u64::MAX),
            Err(error) => return self.fail(numbers, &error),
        };
        for number in numbers {
            let EventKey { shard, time_ms, .. } = &self.wanted[*number];
            let may_be_gap = self.gapless_from_ms.is_none_or(|from_ms| *time_ms < from_ms);
            let answer = if *time_ms < first_ms {
                Ok(EventLookup::TooEarly)
            } else if is_agreed && may_be_gap {
                Ok(EventLookup::HasNot)
            } else {
                Err(ArchiveError::uncovered(*shard, *time_ms))
            };
            self.send(*number, answer);
        }
    }

    fn fail(&self, numbers: &[usize], error: &ArchiveError) {
        numbers.iter().for_each(|number| self.send(*number, Err(error.clone())));
    }

    fn send(&self, number: usize, answer: Result<EventLookup, ArchiveError>) {
        // The search ends soon if its caller has gone.
        let _ = self.answers.send((number, answer));
    }
}
