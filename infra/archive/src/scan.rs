//! Reads the events of one counter in the order of their times.

use crate::archive::{Archive, slice_of};
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, COUNTER_ID_BYTES, Scan, Scope};
use crate::footer::GROUP_ROWS;
use crate::name::{self, ObjectName};
use crate::overlap::{Later, gap};
use crate::reader::{Listed, Opened, TRIES, Unread, View};
use std::iter::empty;
use std::ops::Range;

/// Objects that one step opens together.
const STEP_OBJECTS: usize = 16;
/// Rows that one step decodes, about, at most: what it holds in memory if all of them are the counter's.
const STEP_ROWS: u64 = 262_144;
/// Rows that the first step decodes for each event that is enough. Others may be of other counters, or of other times.
const ROWS_PER_EVENT: u64 = 4;
/// How many times as many rows each further step decodes: it lists the slice again.
const MORE_ROWS: u64 = 4;

/// The rest of a slice, of which a step reads the first part, with bounds on objects and rows.
struct Rest<'a> {
    namespace: &'a str,
    scope: &'a Scope,
    slice_ms: u64,
    times_ms: Range<u64>,
    objects_max: usize,
    rows_max: u64,
}

/// What one step has read.
struct ScanStep {
    events: Vec<ArchivedEvent>,
    /// The first time that it has not read, in Unix ms.
    to_ms: u64,
    /// The number of objects that it has opened.
    objects: usize,
}

impl Archive {
    /// The events of one counter in a scope, from its beginning: all of it, or the first part that has `enough` events or for
    /// which `objects_max` objects were read. The part is never empty.
    ///
    /// # Errors
    /// [`ArchiveError::Unavailable`]: also if no listed object has what one must have, so that events would be missing.
    pub async fn scan(
        &self,
        namespace: &str,
        scope: &Scope,
        enough: usize,
        objects_max: usize,
    ) -> Result<Scan, ArchiveError> {
        let gapless_from_ms = self.gapless_from_ms(namespace).await?.unwrap_or(u64::MAX).max(scope.kept_from_ms);
        let mut scan = Scan { events: Vec::new(), next_ms: scope.times_ms.start };
        let (slices, mut read) = (self.slices(namespace).await?, 0);
        let mut rows_max = (enough as u64).saturating_mul(ROWS_PER_EVENT).clamp(GROUP_ROWS as u64, STEP_ROWS);
        while scan.next_ms < scope.times_ms.end && scan.events.len() < enough && read < objects_max {
            let slice_ms = slice_of(scan.next_ms, scope.slice_length_ms);
            let mut rest = scan.next_ms..scope.times_ms.end.min(slice_ms + scope.slice_length_ms);
            if !slices.contains(&slice_ms) {
                rest.end =
                    slices.range(slice_ms..).next().map_or(scope.times_ms.end, |next| scope.times_ms.end.min(*next));
                // Behind a slice there is one for each that the archive has.
                let must_be =
                    slices.range(..slice_ms).next().and_then(|_| scope.uncovered(empty(), &rest, gapless_from_ms));
                if let Some((shard, time_ms)) = must_be {
                    return Err(ArchiveError::uncovered(shard, time_ms));
                }
                scan.next_ms = rest.end;
                continue;
            }
            let objects_max = objects_max - read;
            let rest = Rest { namespace, scope, slice_ms, times_ms: rest, objects_max, rows_max };
            let mut tries_left = TRIES;
            let mut step = loop {
                tries_left -= 1;
                match self.step(&rest, gapless_from_ms).await {
                    Err(ArchiveError::Gone { .. }) if tries_left > 0 => {}
                    done => break done?,
                }
            };
            read += step.objects;
            scan.events.append(&mut step.events);
            scan.next_ms = step.to_ms;
            rows_max = (rows_max * MORE_ROWS).min(STEP_ROWS);
        }
        scan.events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
        Ok(scan)
    }

    /// Reads the first part of the rest of a slice.
    async fn step(&self, rest: &Rest<'_>, gapless_from_ms: u64) -> Result<ScanStep, ArchiveError> {
        let Rest { namespace, scope, slice_ms, .. } = *rest;
        let (mut objects, mut step_ms, names) = self.open_step(rest).await?;
        if scope.uncovered(objects.iter(), &step_ms, 0).is_some() {
            // A merge may have hidden objects from this list: a second one must be the same.
            let again = self.open_step(rest).await?;
            if again.2 != names {
                return Err(ArchiveError::Gone { path: format!("an object of {}", name::slice(namespace, slice_ms)?) });
            }
            (objects, step_ms) = (again.0, again.1);
            if let Some((shard, time_ms)) = scope.uncovered(objects.iter(), &step_ms, gapless_from_ms)
                // Retention has deleted the slice meanwhile.
                && self.first_slice_ms(namespace).await?.is_some_and(|first_ms| first_ms <= slice_ms)
            {
                return Err(ArchiveError::uncovered(shard, time_ms));
            }
        }
        let mut step = ScanStep { events: Vec::new(), to_ms: step_ms.end, objects: objects.len() };
        for object in objects.iter().filter(|object| object.name.overlaps(&step_ms)) {
            let later = Later::than(object, &objects);
            for (number, group) in object.footer.groups.iter().enumerate() {
                if group.may_have(&scope.counter_id, &step_ms) {
                    let wanted = scope.counter_id;
                    let mut events = self.reader.events(object, number, move |id| *id == wanted).await?;
                    events.retain(|event| {
                        let is_in = step_ms.contains(&event.time_ms) && scope.has(event.shard);
                        is_in && later.leaves(event.shard, event.time_ms)
                    });
                    step.events.append(&mut events);
                }
            }
        }
        Ok(step)
    }

    /// The objects of the first part of the rest of a slice, this part, and the names in the list of the slice.
    async fn open_step(&self, rest: &Rest<'_>) -> Result<(Vec<Opened>, Range<u64>, Vec<ObjectName>), ArchiveError> {
        let Rest { namespace, scope, slice_ms, rows_max, .. } = *rest;
        let times_of_step = |listed: &[Listed]| [step_of(listed, &rest.times_ms, rest.objects_max)];
        let view = self.reader.open(namespace, slice_ms, times_of_step).await?;
        let View { objects, unread, wanted: [step_ms], names } = view;
        let step_ms = step_ms.start..end_of_step(&objects, &scope.counter_id, &step_ms, rows_max);
        match unread.into_iter().find(|unread| !scope.is_replaced(unread, &objects, &step_ms)) {
            Some(needed) => Err(needed.error),
            None => Ok((objects, step_ms, names)),
        }
    }
}

impl Scope {
    fn has(&self, shard: u16) -> bool {
        self.shards.iter().any(|(of_scope, _)| *of_scope == shard)
    }

    /// A shard and the first of these times that no object has, of those that the archive must have from a time on.
    fn uncovered<'a>(
        &self,
        objects: impl Iterator<Item = &'a Opened> + Clone,
        times_ms: &Range<u64>,
        from_ms: u64,
    ) -> Option<(u16, u64)> {
        self.shards.iter().find_map(|(shard, to_ms)| {
            let must_have = times_ms.start.max(from_ms)..times_ms.end.min(*to_ms);
            gap(objects.clone(), *shard, must_have).map(|time_ms| (*shard, time_ms))
        })
    }

    /// Whether later objects say all that an object which cannot be read may say of these times.
    fn is_replaced(&self, unread: &Unread, objects: &[Opened], times_ms: &Range<u64>) -> bool {
        let both = times_ms.start.max(unread.name.from_ms)..times_ms.end.min(unread.name.to_ms);
        let later = objects.iter().filter(|object| object.name > unread.name);
        self.shards.iter().all(|(shard, _)| gap(later.clone(), *shard, both.clone()).is_none())
    }
}

/// The first part of a time that one step reads: up to where a few objects reach, and whatever else has something of it.
fn step_of(listed: &[Listed], rest: &Range<u64>, objects_max: usize) -> Range<u64> {
    let names: Vec<&ObjectName> = listed.iter().map(|listed| &listed.name).filter(|name| name.overlaps(rest)).collect();
    let mut begins: Vec<u64> = names.iter().map(|name| name.from_ms).collect();
    begins.sort_unstable();
    let to_ms = begins.get(STEP_OBJECTS.min(objects_max)).copied().unwrap_or(rest.end);
    if to_ms > rest.start + 1 {
        return rest.start..to_ms;
    }
    // Several begin at the same time, before the rest does: up to the first end of one, or the next begin.
    let bounds = names.iter().flat_map(|name| [name.from_ms, name.to_ms]).filter(|bound_ms| *bound_ms > rest.start);
    rest.start..bounds.min().unwrap_or(rest.start + 1).min(rest.end)
}

/// Where a step must end to decode at most about this number of rows. The row groups of one counter are in the order of time in
/// each object; those that begin at or before the start of the step are all read.
fn end_of_step(objects: &[Opened], counter_id: &[u8; COUNTER_ID_BYTES], step_ms: &Range<u64>, rows_max: u64) -> u64 {
    let groups = objects.iter().flat_map(|object| &object.footer.groups);
    let groups = groups.filter(|group| group.may_have(counter_id, step_ms));
    let mut groups: Vec<(u64, u64)> = groups.map(|group| (group.times_ms[0], group.rows)).collect();
    groups.sort_unstable();
    let mut rows = 0;
    for (first_ms, of_group) in groups {
        rows += of_group;
        if rows > rows_max && first_ms > step_ms.start {
            return first_ms;
        }
    }
    step_ms.end
}
