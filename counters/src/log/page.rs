//! One page of a counter's events, for those who add them up.

use super::events::{Event, Events};
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::ops::Range;

/// At this number of events, a page begins no further scan, unless its caller needs fewer.
pub(crate) const PAGE_EVENTS_MAX: usize = 100_000;
/// Scans of the log for one page, at most.
const SCANS_MAX: usize = 2;

/// Reads the events of these windows, or of the first ones: as many as one call may, and no further scan from `enough` events
/// on. `take` is given those of each scan, and
/// returns whether another may follow. Returns the first window that was not read.
pub(crate) async fn read_page(
    log: &impl Events,
    counter: &CounterName,
    windows: Range<u64>,
    enough: usize,
    mut take: impl FnMut(&[Event]) -> bool,
) -> Result<u64, Refusal> {
    let (mut next, mut events) = (windows.start, 0);
    for _ in 0..SCANS_MAX {
        if next >= windows.end || events >= enough {
            break;
        }
        let scan = log.scan(counter, next..windows.end, enough - events).await?;
        events += scan.events.len();
        next = scan.next_window;
        if !take(&scan.events) {
            break;
        }
    }
    Ok(next)
}
