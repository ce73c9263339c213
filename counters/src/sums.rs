//! Sums of a counter's adds by minute, hour and day (N16): what events there are is read and added up, page by page.

use crate::checkpoints::Deletions;
use crate::log::{Change, Event, Events, PAGE_EVENTS_MAX, WINDOW_MS, read_page};
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::ops::Range;

/// With more periods than this, a page begins no further scan.
const PERIODS_MAX: usize = 1_000;

/// The length of the periods by which adds are summed. A day begins at 00:00 UTC.
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

    /// The number of periods in a range without a start.
    fn number_by_default(self) -> u64 {
        match self {
            Period::Minute => 60,
            Period::Hour => 24,
            Period::Day => 30,
        }
    }

    /// The start of the period that contains this time, in Unix ms.
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
    /// `exact_to_ms` of the first page: what a page has read is final to this time, also if a later page has a later one.
    /// `None`: this is the first page.
    pub exact_to_ms: Option<u64>,
}

/// A page of sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SumsPage {
    /// The periods with adds, in the order of time; each of them is whole.
    pub sums: Vec<PeriodSum>,
    /// Where the next page begins; `None`: this was the last page.
    pub next: Option<SumsPosition>,
    /// No add before this time can come any more, in Unix ms. It is the same for all pages.
    pub exact_to_ms: u64,
}

/// A page, and how far back its namespace keeps events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSums {
    /// The page.
    pub page: SumsPage,
    /// Adds before this time may have been dropped, in Unix ms.
    pub kept_from_ms: u64,
}

impl SumsPosition {
    /// The position of the first page. The range is `within_ms` (Unix ms), extended to whole periods, but it ends at `future_ms` at
    /// the latest. An end of 0: now. A start of 0: the range has 60 minutes, 24 hours or 30 days.
    pub fn first(period: Period, within_ms: Range<u64>, future_ms: u64) -> SumsPosition {
        let last_ms = if within_ms.end == 0 { future_ms } else { within_ms.end.min(future_ms) }.saturating_sub(1);
        let end_ms = (period.begin_ms(last_ms) + period.length_ms()).min(future_ms);
        let before_ms = (period.number_by_default() - 1) * period.length_ms();
        let first_ms = if within_ms.start == 0 { last_ms.saturating_sub(before_ms) } else { within_ms.start };
        SumsPosition { next_ms: period.begin_ms(first_ms), end_ms, unfinished: None, exact_to_ms: None }
    }
}

/// A page of the sums of a counter's adds, without those that a deletion has removed.
pub async fn sums(
    log: &(impl Events + Deletions),
    counter: &CounterName,
    period: Period,
    from: SumsPosition,
) -> Result<SumsPage, Refusal> {
    // Read before the events. Otherwise an add could arrive between the two reads, be before this time, and be missing.
    let exact_to_ms = match from.exact_to_ms {
        Some(exact_to_ms) => exact_to_ms,
        None => log.exact_to(counter).await?,
    };
    let undeleted_from_ms = log.undeleted_from(counter).await?;
    let mut sums: Vec<PeriodSum> = from.unfinished.into_iter().collect();
    let end = from.end_ms.div_ceil(WINDOW_MS);
    let take = |events: &[Event]| {
        for event in events {
            if let Change::Add(delta) = event.change
                && (undeleted_from_ms..from.end_ms).contains(&event.time_ms)
            {
                add(&mut sums, period.begin_ms(event.time_ms), delta);
            }
        }
        sums.len() <= PERIODS_MAX
    };
    let next = read_page(log, counter, from.next_ms / WINDOW_MS..end, PAGE_EVENTS_MAX, take).await?;
    let next_ms = next * WINDOW_MS;
    let next = (next < end).then(|| {
        let unfinished = sums.pop_if(|last| last.from_ms + period.length_ms() > next_ms);
        SumsPosition { next_ms, end_ms: from.end_ms, unfinished, exact_to_ms: Some(exact_to_ms) }
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
        assert_eq!(range(Range { start: 1, end: 0 }, now_ms), 0..now_ms);
        assert_eq!(range(5 * HOUR_MS + 1..7 * HOUR_MS, now_ms), 5 * HOUR_MS..7 * HOUR_MS);
        assert_eq!(range(5 * HOUR_MS..7 * HOUR_MS + 1, now_ms), 5 * HOUR_MS..8 * HOUR_MS);
        assert_eq!(range(0..7 * HOUR_MS, now_ms), 0..7 * HOUR_MS, "it does not begin before 1970");
        assert_eq!(range(100 * HOUR_MS..200 * HOUR_MS, now_ms), 100 * HOUR_MS..now_ms);
    }
}
