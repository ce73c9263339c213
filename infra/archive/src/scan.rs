//! Reads the events of one counter in the order of their times.

use crate::archive::{Archive, slice_of};
use crate::error::ArchiveError;
use crate::event::{Scan, Scope};
use crate::name;
use crate::overlap::Later;

/// Objects that one step opens together.
const STEP_OBJECTS: usize = 8;

impl Archive {
    /// The events of one counter in a scope, from its beginning: all of it, or the first part that has `enough` events or for
    /// which `objects_max` objects were read. The part is never empty.
    pub async fn scan(
        &self,
        namespace: &str,
        scope: &Scope,
        enough: usize,
        objects_max: usize,
    ) -> Result<Scan, ArchiveError> {
        self.check_mark(namespace).await?;
        let mut scan = Scan { events: Vec::new(), next_ms: scope.times_ms.start };
        let (slices, mut read) = (self.slices(namespace).await?, 0);
        while scan.next_ms < scope.times_ms.end && scan.events.len() < enough && read < objects_max {
            let slice_ms = slice_of(scan.next_ms, scope.slice_length_ms);
            if !slices.contains(&slice_ms) {
                let next = slices.range(slice_ms..).next().copied();
                scan.next_ms = next.unwrap_or(scope.times_ms.end).min(scope.times_ms.end);
                continue;
            }
            let end_ms = scope.times_ms.end.min(slice_ms + scope.slice_length_ms);
            let rest = scan.next_ms..end_ms;
            let mut names = self.reader.names(namespace, slice_ms).await?;
            names.retain(|name| name.overlaps(&rest));
            // Up to where a few objects reach, and whatever else has something of that time.
            let mut begins: Vec<u64> = names.iter().map(|name| name.from_ms).collect();
            begins.sort_unstable();
            let step = STEP_OBJECTS.min(objects_max - read);
            let to_ms = begins.get(step).copied().unwrap_or(end_ms).max(scan.next_ms + 1);
            // Several may begin at the same time, before the rest does.
            let to_ms = if to_ms <= scan.next_ms + 1 { next_end(&names, scan.next_ms).min(end_ms) } else { to_ms };
            let step_ms = scan.next_ms..to_ms;
            let objects = self.reader.open(namespace, slice_ms, std::slice::from_ref(&step_ms)).await?;
            read += objects.len();
            for object in &objects {
                let later = Later::than(object, &objects);
                for (number, group) in object.footer.groups.iter().enumerate() {
                    if group.may_have(&scope.counter_id, &step_ms) {
                        let wanted = scope.counter_id;
                        let mut events = self.reader.events(object, number, move |id| *id == wanted).await?;
                        events.retain(|event| {
                            let is_in = step_ms.contains(&event.time_ms) && scope.shards.contains(&event.shard);
                            is_in && later.leaves(event.shard, event.time_ms)
                        });
                        scan.events.append(&mut events);
                    }
                }
            }
            scan.next_ms = to_ms;
        }
        scan.events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
        Ok(scan)
    }
}

/// The first end of an object, or begin of another, after a time.
fn next_end(names: &[name::ObjectName], after_ms: u64) -> u64 {
    let bounds = names.iter().flat_map(|name| [name.from_ms, name.to_ms]);
    bounds.filter(|bound_ms| *bound_ms > after_ms).min().unwrap_or(after_ms + 1)
}
