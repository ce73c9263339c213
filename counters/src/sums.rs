//! Sums of a counter's adds by minute, hour and day (N16): what events there are is read and added up, page by page.

use crate::checkpoints::Deletions;
use crate::log::{Change, Events, WINDOW_MS};
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::ops::Range;

/// Events that one page reads, about.
const EVENTS_MAX: usize = 100_000;
/// Periods of one page.
const PERIODS_MAX: usize = 1_000;
/// Scans of the log for one page.
const SCANS_MAX: usize = 8;

/// The length of the periods by which adds are summed. All periods begin in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Period {
    /// Its length.
    pub fn length_ms(self) -> u64 {
        match self {
            Period::Minute => 60_000,
            Period::Hour => 3_600_000,
            Period::Day => 86_400_000,
        }
    }

    /// How many periods a range has whose begin is not given.
    fn number_by_default(self) -> u64 {
        match self {
            Period::Minute => 60,
            Period::Hour => 24,
            Period::Day => 30,
        }
    }

    /// When the period begins that has this time, in Unix ms.
    pub fn begin_ms(self, time_ms: u64) -> u64 {
        time_ms - time_ms % self.length_ms()
    }
}

/// The adds of one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodSum {
    /// When the period begins, in Unix ms.
    pub from_ms: u64,
    /// The sum of the adds.
    pub sum: i128,
    /// The number of the adds.
    pub adds: u64,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsPosition {
    /// The first time that is not summed yet, in Unix ms.
    pub next_ms: u64,
    /// Where the range ends, in Unix ms. It is the same for all pages: a range that ends now would grow with the time.
    pub end_ms: u64,
    /// What the pages before have summed of the period that they left unfinished.
    pub unfinished: Option<PeriodSum>,
}

/// A page of sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SumsPage {
    /// The periods with adds, in the order of time; each of them is whole.
    pub sums: Vec<PeriodSum>,
    /// Where the next page begins; `None`: this was the last page.
    pub next: Option<SumsPosition>,
    /// No add before this time can come any more, in Unix ms.
    pub exact_to_ms: u64,
}

/// A page, and how far back its namespace keeps events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSums {
    /// The page.
    pub page: SumsPage,
    /// Adds before this time may be dropped, in Unix ms.
    pub kept_from_ms: u64,
}

impl SumsPosition {
    /// The begin of a range that consists of the periods which have some of `within_ms` (Unix ms); an end of 0: now; a begin of
    /// 0: such that the range has 60 minutes, 24 hours or 30 days. It ends at `future_ms` at the latest.
    pub fn first(period: Period, within_ms: Range<u64>, future_ms: u64) -> SumsPosition {
        let last_ms = if within_ms.end == 0 { future_ms } else { within_ms.end.min(future_ms) }.saturating_sub(1);
        let end_ms = (period.begin_ms(last_ms) + period.length_ms()).min(future_ms);
        let before_ms = (period.number_by_default() - 1) * period.length_ms();
        let first_ms = if within_ms.start == 0 { last_ms.saturating_sub(before_ms) } else { within_ms.start };
        SumsPosition { next_ms: period.begin_ms(first_ms), end_ms, unfinished: None }
    }
}

/// A page of the sums of a counter's adds, without those that a deletion has removed.
pub async fn sums(
    log: &(impl Events + Deletions),
    counter: &CounterName,
    period: Period,
    from: SumsPosition,
) -> Result<SumsPage, Refusal> {
    // Before the events are read: an add that came in between is not in the sums.
    let exact_to_ms = log.final_to(counter).await?;
    let kept_from_ms = log.deleted_to(counter).await?.map_or(0, |deleted_ms| deleted_ms + 1);
    let mut sums: Vec<PeriodSum> = from.unfinished.into_iter().collect();
    let (mut next, end, mut events) = (from.next_ms / WINDOW_MS, from.end_ms.div_ceil(WINDOW_MS), 0);
    for _ in 0..SCANS_MAX {
        if next >= end || events >= EVENTS_MAX || sums.len() > PERIODS_MAX {
            break;
        }
        let scan = log.scan(counter, next..end, EVENTS_MAX - events).await?;
        events += scan.events.len();
        for event in &scan.events {
            if let Change::Add(delta) = event.change
                && (kept_from_ms..from.end_ms).contains(&event.time_ms)
            {
                add(&mut sums, period.begin_ms(event.time_ms), delta);
            }
        }
        next = scan.next_window;
    }
    let next_ms = next * WINDOW_MS;
    let next = (next < end).then(|| {
        let unfinished = sums.pop_if(|last| last.from_ms + period.length_ms() > next_ms);
        SumsPosition { next_ms, end_ms: from.end_ms, unfinished }
    });
    Ok(SumsPage { sums, next, exact_to_ms })
}

/// Counts an add of the last period, or of a later one.
fn add(sums: &mut Vec<PeriodSum>, from_ms: u64, delta: i64) {
    match sums.last_mut().filter(|last| last.from_ms == from_ms) {
        Some(last) => (last.sum, last.adds) = (last.sum + i128::from(delta), last.adds + 1),
        None => sums.push(PeriodSum { from_ms, sum: delta.into(), adds: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn n16_a_range_consists_of_whole_periods() {
        let range = |within_ms, future_ms| {
            let SumsPosition { next_ms, end_ms, .. } = SumsPosition::first(Period::Hour, within_ms, future_ms);
            next_ms..end_ms
        };
        let now_ms = 100 * HOUR_MS + 7;
        assert_eq!(range(0..0, now_ms), 77 * HOUR_MS..now_ms);
        assert_eq!(range(1..0, now_ms), 0..now_ms);
        assert_eq!(range(5 * HOUR_MS + 1..7 * HOUR_MS, now_ms), 5 * HOUR_MS..7 * HOUR_MS);
        assert_eq!(range(5 * HOUR_MS..7 * HOUR_MS + 1, now_ms), 5 * HOUR_MS..8 * HOUR_MS);
        assert_eq!(range(0..7 * HOUR_MS, now_ms), 0..7 * HOUR_MS, "it does not begin before there is time");
        assert_eq!(range(100 * HOUR_MS..200 * HOUR_MS, now_ms), 100 * HOUR_MS..now_ms);
    }
}
