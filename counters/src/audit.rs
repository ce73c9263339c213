//! The audit of a counter (N12): its events are counted again, page by page, and compared with the count of its last rollup. The
//! adds of a page can be grouped (N20).

use crate::checkpoints::{Checkpoint, Checkpoints, Deletions, Epoch};
use crate::log::{Change, Event, Events, PAGE_EVENTS_MAX, WINDOW_MS, read_page};
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::collections::BTreeMap;

/// With so many groups a page ends.
const GROUPS_MAX: usize = 10_000;

/// How far an audit has got, and what it has found. It is finished when it has read every event of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Identifies the namespace among those of the same name; the service sets it.
    pub namespace: u64,
    /// The first time that is not read yet, in Unix ms.
    pub next_ms: u64,
    /// The count that the events are compared with.
    pub count: i64,
    /// The time to which that count is exact, in Unix ms.
    pub exact_to_ms: u64,
    /// The epoch of that count.
    pub epoch: Epoch,
    /// No earlier event belongs to the counter, because it was deleted; in Unix ms.
    pub undeleted_from_ms: u64,
    /// The events that were read: adds and clears.
    pub events: u64,
    /// The sum of the adds after the last clear.
    pub sum: i128,
    /// When the last clear happened, in Unix ms; 0: there is none.
    pub cleared_ms: u64,
}

impl Audit {
    /// Of the events since the last clear, as far as the checkpoint has it: a clear of another region is not among the events.
    fn of(checkpoint: Checkpoint, undeleted_from_ms: u64) -> Audit {
        let Checkpoint { count, exact_to_ms, epoch, cleared_ms, .. } = checkpoint;
        let next_ms = undeleted_from_ms.max(if cleared_ms > 0 { cleared_ms + 1 } else { 0 });
        Audit { namespace: 0, next_ms, count, exact_to_ms, epoch, undeleted_from_ms, events: 0, sum: 0, cleared_ms }
    }

    /// Of the events after a clear of another region.
    pub(crate) fn since(checkpoint: Checkpoint, undeleted_from_ms: u64, cleared_ms: u64) -> Audit {
        Audit::of(Checkpoint { cleared_ms, ..checkpoint }, undeleted_from_ms)
    }

    /// Whether it has read every event of the count.
    pub fn is_finished(&self) -> bool {
        self.next_ms >= self.exact_to_ms
    }

    /// What the count must be: the sum of the events, and the adjustments of earlier recounts.
    pub fn recounted(&self) -> i128 {
        self.sum + i128::from(self.epoch.adjusted)
    }

    /// Whether no event of the count can have been dropped, in a namespace that keeps those from a time on (Unix ms).
    pub fn is_complete(&self, kept_from_ms: u64) -> bool {
        self.undeleted_from_ms.max(self.cleared_ms) >= kept_from_ms
    }

    /// Whether a recount could leave adds out because events were dropped, before the audit or since.
    pub(crate) fn may_lack_events(&self, kept_from_ms: u64) -> bool {
        let differs = self.recounted() != i128::from(self.count);
        self.exact_to_ms < kept_from_ms || differs && !self.is_complete(kept_from_ms)
    }

    /// Events come in the order of their times. A clear removes every add up to its time, also those of the same time that
    /// come after it.
    fn take(&mut self, event: &Event, groups: &mut Groups) {
        self.events += 1;
        match event.change {
            Change::Clear => {
                (self.sum, self.cleared_ms) = (0, event.time_ms);
                groups.clear();
            }
            Change::Add(delta) if event.time_ms > self.cleared_ms => {
                self.sum += i128::from(delta);
                groups.take(event, delta);
            }
            Change::Add(_) => {}
        }
    }
}

/// By what the adds of an audit are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Their source.
    Source,
    /// The key of their item.
    EventItemKey,
}

/// Adds with the same source or item key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The number of adds.
    pub adds: u64,
    /// Their sum.
    pub sum: i128,
}

/// The adds of one page of an audit after its last clear, in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    by: Option<GroupBy>,
    is_cleared: bool,
    groups: BTreeMap<Box<str>, Group>,
}

impl Groups {
    /// Before the page is read. `None`: nothing is grouped.
    pub fn by(by: Option<GroupBy>) -> Groups {
        Groups { by, ..Groups::default() }
    }

    /// Whether the page has a clear, which removes the adds of earlier pages.
    pub fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Whether the page must end here. An answer has a bound, except for adds of one millisecond, of which the page has all.
    fn are_full(&self) -> bool {
        self.groups.len() >= GROUPS_MAX
    }

    fn clear(&mut self) {
        self.is_cleared = self.by.is_some();
        self.groups.clear();
    }

    fn take(&mut self, event: &Event, delta: i64) {
        let key = match self.by {
            None => return,
            Some(GroupBy::Source) => event.labels.source(),
            Some(GroupBy::EventItemKey) => event.labels.event_item_key(),
        };
        if !self.groups.contains_key(key) {
            self.groups.insert(key.into(), Group::default());
        }
        if let Some(group) = self.groups.get_mut(key) {
            group.adds += 1;
            group.sum += i128::from(delta);
        }
    }
}

impl IntoIterator for Groups {
    type Item = (Box<str>, Group);
    type IntoIter = std::collections::btree_map::IntoIter<Box<str>, Group>;

    /// In the order of their keys; an empty one is of the adds that have none.
    fn into_iter(self) -> Self::IntoIter {
        self.groups.into_iter()
    }
}

/// Begins an audit of a counter, and reads its first page. A counter without a count has no events to read. `groups` gets the
/// adds of the page.
pub async fn begin(
    log: &(impl Events + Checkpoints + Deletions),
    counter: &CounterName,
    groups: &mut Groups,
) -> Result<Audit, Refusal> {
    // In this order: a deletion between the two reads is then in the second one.
    let undeleted_from_ms = log.undeleted_from(counter).await?;
    let checkpoint = counted(log, counter).await?.unwrap_or_default();
    go_on(log, counter, Audit::of(checkpoint, undeleted_from_ms), groups).await
}

/// Reads a page of the events that an audit has not read yet. `groups` gets its adds.
///
/// # Errors
/// [`Refusal::CounterChanged`]: the counter was deleted since the audit began.
pub async fn go_on(
    log: &(impl Events + Deletions),
    counter: &CounterName,
    mut audit: Audit,
    groups: &mut Groups,
) -> Result<Audit, Refusal> {
    if !audit.is_finished() {
        let unread = audit.next_ms..audit.exact_to_ms;
        let windows = unread.start / WINDOW_MS..unread.end.div_ceil(WINDOW_MS);
        // Nearly every add may have its own item, and what is read behind the end of the page is read again.
        let enough = if groups.by == Some(GroupBy::EventItemKey) { GROUPS_MAX } else { PAGE_EVENTS_MAX };
        let mut full_ms = None;
        let take = |events: &[Event]| {
            let mut last_ms = 0;
            for event in events.iter().filter(|event| unread.contains(&event.time_ms)) {
                if event.time_ms > last_ms && groups.are_full() {
                    full_ms = Some(event.time_ms);
                    break;
                }
                last_ms = event.time_ms;
                audit.take(event, groups);
            }
            full_ms.is_none()
        };
        let next_window = read_page(log, counter, windows, enough, take).await?;
        audit.next_ms = full_ms.unwrap_or(next_window * WINDOW_MS).min(audit.exact_to_ms);
    }
    // Read after the events: a deletion takes them away.
    if log.undeleted_from(counter).await? != audit.undeleted_from_ms {
        return Err(Refusal::CounterChanged { why: "the counter was deleted since the audit began" });
    }
    Ok(audit)
}

/// The checkpoint of a counter; `None`: it has no count, because no rollup has counted anything, or because it was deleted.
pub(crate) async fn counted(
    checkpoints: &impl Checkpoints,
    counter: &CounterName,
) -> Result<Option<Checkpoint>, Refusal> {
    let found = checkpoints.read(std::slice::from_ref(counter)).await?.into_iter().next();
    Ok(found.filter(|checkpoint| checkpoint.exact_to_ms > 0 && !checkpoint.is_deleted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::LeaseOrder;
    use crate::log::{Bounds, Labels, NewEvent};
    use crate::names::Token;
    use crate::namespace::NamespaceConfig;
    use crate::oracle::Oracle;
    use crate::rollup::{Job, roll_up};
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn n12_a_clear_removes_every_add_up_to_its_time() {
        let token = Token::parse("t").unwrap();
        let recounted = |events: &[(u64, Change)]| {
            let mut audit = Audit::of(Checkpoint::default(), 0);
            let event = |(time_ms, change): &(u64, Change)| Event {
                time_ms: *time_ms,
                token: token.clone(),
                change: *change,
                labels: Labels::default(),
            };
            events.iter().map(event).for_each(|event| audit.take(&event, &mut Groups::default()));
            (audit.events, audit.sum, audit.is_complete(2))
        };
        let add = |time_ms, delta| (time_ms, Change::Add(delta));
        assert_eq!(recounted(&[add(1, 5), add(2, -7)]), (2, -2, false));
        assert_eq!(recounted(&[add(1, 5), (2, Change::Clear), add(2, 9), add(3, 4)]), (4, 4, true));
        assert_eq!(recounted(&[add(1, i64::MAX), add(2, i64::MAX)]), (2, 2 * i128::from(i64::MAX), false));
    }

    #[test]
    fn n20_groups_have_what_the_sum_has_and_a_clear_removes_them() {
        let token = Token::parse("t").unwrap();
        let event = |time_ms, change, source, key| {
            let labels = Labels::parse(source, key).unwrap();
            Event { time_ms, token: token.clone(), change, labels }
        };
        let grouped = |by: Option<GroupBy>, events: &[Event]| {
            let (mut audit, mut groups) = (Audit::of(Checkpoint::default(), 0), Groups::by(by));
            events.iter().for_each(|event| audit.take(event, &mut groups));
            let is_cleared = groups.is_cleared();
            let groups: Vec<_> = groups.into_iter().map(|(key, of)| (key.into_string(), of.adds, of.sum)).collect();
            let sum = groups.iter().map(|(.., sum)| sum).sum::<i128>();
            assert!(by.is_none() || sum == audit.sum, "{groups:?} and {}", audit.sum);
            (is_cleared, groups)
        };
        let group = |key: &str, adds, sum| (key.to_owned(), adds, sum);
        let clear = event(2, Change::Clear, "", "");
        let adds = [
            event(1, Change::Add(100), "eu", "a"),
            event(2, Change::Add(7), "us", "a"),
            event(3, Change::Add(5), "eu", "a"),
            event(4, Change::Add(-9), "eu", ""),
            event(4, Change::Add(1), "", "b"),
        ];
        let all = grouped(Some(GroupBy::Source), &adds);
        assert_eq!(all, (false, vec![group("", 1, 1), group("eu", 3, 96), group("us", 1, 7)]));
        let cleared = [&adds[..1], &[clear], &adds[1..]].concat();
        let by_source = grouped(Some(GroupBy::Source), &cleared);
        assert_eq!(by_source, (true, vec![group("", 1, 1), group("eu", 2, -4)]), "also what is at its time");
        let by_item = grouped(Some(GroupBy::EventItemKey), &cleared);
        assert_eq!(by_item, (true, vec![group("", 1, -9), group("a", 1, 5), group("b", 1, 1)]));
        assert_eq!(grouped(None, &cleared), (false, Vec::new()));
    }

    /// The oracle reads everything in one scan.
    #[tokio::test]
    async fn n20_a_page_ends_between_two_milliseconds_when_it_has_very_many_groups() {
        const NOON_MS: u64 = 1_795_176_000_000;
        const OF_A_MILLISECOND: usize = 60;
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let store = Oracle::default().open(NamespaceConfig::default(), 1, clock_ms.clone()).unwrap();
        let name = CounterName::parse("c").unwrap();
        let item = |number: usize| NewEvent {
            counter: name.clone(),
            token: Token::parse(format!("t{number}")).unwrap(),
            time_ms: Some(NOON_MS - 1_000 + (number / OF_A_MILLISECOND) as u64),
            change: Change::Add(1),
            bounds: Bounds::default(),
            labels: Labels::parse("", format!("k{number}")).unwrap(),
        };
        let all = 2 * GROUPS_MAX + 100;
        assert!(store.append(&(0..all).map(item).collect::<Vec<_>>()).await.iter().all(Result::is_ok));
        clock_ms.fetch_add(60_000, Ordering::SeqCst);
        let lease = LeaseOrder { leased_at_ms: NOON_MS, fencing_token: 0 };
        roll_up(&store, &store, &[Job { counter: name.clone(), lease }]).await.remove(0).unwrap();

        let (mut keys, mut pages) = (BTreeSet::new(), Vec::new());
        let mut groups = Groups::by(Some(GroupBy::EventItemKey));
        let mut audit = begin(&store, &name, &mut groups).await.unwrap();
        loop {
            pages.push(groups.groups.len());
            assert!(groups.into_iter().all(|(key, _)| keys.insert(key)), "each item once");
            if audit.is_finished() {
                break;
            }
            groups = Groups::by(Some(GroupBy::EventItemKey));
            audit = go_on(&store, &name, audit, &mut groups).await.unwrap();
        }
        let full = GROUPS_MAX.next_multiple_of(OF_A_MILLISECOND);
        assert_eq!(pages, [full, full, all - 2 * full]);
        assert_eq!((keys.len(), audit.sum, audit.events), (all, all as i128, all as u64));
        let whole = begin(&store, &name, &mut Groups::by(Some(GroupBy::Source))).await.unwrap();
        assert!(whole.is_finished() && whole.sum == audit.sum, "one group needs one page");
    }

    #[test]
    fn n12_adjustments_are_no_difference() {
        let audit = Audit { sum: 5, epoch: Epoch { number: 2, adjusted: -3 }, ..Audit::of(Checkpoint::default(), 0) };
        assert_eq!(audit.recounted(), 2);
    }
}
