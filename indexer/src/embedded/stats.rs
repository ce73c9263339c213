//! Statistics of a queue over a span of time and its intervals: one pass over `historic_by_time`.

use super::rows::queue_number;
use crate::StatsQuery;
use hdrhistogram::Histogram;
use rusqlite::{Connection, Row, params};
use std::cmp::Reverse;
use std::collections::HashMap;
use tallystone_model::State;
use tallystone_proto::history::v1::{Activity, ReasonCount, StateActivity};

/// Percentiles are exact to one thousandth.
const DIGITS: u8 = 3;
/// Reasons returned, the most frequent first.
const REASONS: usize = 20;

const ROWS: &str = "SELECT at_ms, from_state, to_state, spent_ms, reason FROM historic INDEXED BY historic_by_time \
     WHERE queue = ? AND at_ms >= ? AND at_ms < ? ORDER BY at_ms";

pub(super) fn stats(connection: &Connection, query: &StatsQuery) -> rusqlite::Result<Vec<Activity>> {
    let mut whole = Tally::default();
    let mut intervals = Intervals::new(query);
    if let Some(queue) = queue_number(connection, &query.queue)? {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let mut select = connection.prepare_cached(ROWS)?;
        let mut rows = select.query(params![queue, signed(query.from_ms), signed(query.to_ms)])?;
        while let Some(row) = rows.next()? {
            let at_ms: i64 = row.get(0)?;
            whole.add(row)?;
            if let Some(interval) = intervals.at(at_ms as u64) {
                interval.add(row)?;
            }
        }
    }
    let mut activities = vec![whole.activity(query.from_ms, query.to_ms)];
    activities.extend(intervals.all());
    Ok(activities)
}

/// The intervals of the span in order. Rows come in order of time, so only one interval is open at a time.
struct Intervals {
    /// Where the open interval begins; equal to `to_ms` if none is open.
    from_ms: u64,
    to_ms: u64,
    interval_ms: u64,
    open: Tally,
    done: Vec<Activity>,
}

impl Intervals {
    fn new(query: &StatsQuery) -> Intervals {
        let (from_ms, interval_ms) = match query.interval_ms {
            Some(interval_ms) => (query.from_ms, interval_ms.max(1)),
            None => (query.to_ms, 1),
        };
        Intervals { from_ms, to_ms: query.to_ms, interval_ms, open: Tally::default(), done: Vec::new() }
    }

    fn open_to_ms(&self) -> u64 {
        self.from_ms.saturating_add(self.interval_ms).min(self.to_ms)
    }

    fn close(&mut self) {
        let to_ms = self.open_to_ms();
        self.done.push(std::mem::take(&mut self.open).activity(self.from_ms, to_ms));
        self.from_ms = to_ms;
    }

    /// The interval that contains this time, Unix ms.
    fn at(&mut self, at_ms: u64) -> Option<&mut Tally> {
        while self.from_ms < self.to_ms && self.open_to_ms() <= at_ms {
            self.close();
        }
        (self.from_ms < self.to_ms).then_some(&mut self.open)
    }

    fn all(mut self) -> Vec<Activity> {
        while self.from_ms < self.to_ms {
            self.close();
        }
        self.done
    }
}

/// Distinct reasons that are counted in one span. Where there are more, hardly any of them is frequent.
const REASONS_MAX: usize = 10_000;

#[derive(Default)]
struct Tally {
    /// Indexed by the number of the state; 0 is "not in the queue".
    states: [StateTally; State::ALL.len() + 1],
    reasons: HashMap<String, u64>,
}

#[derive(Default)]
struct StateTally {
    entered: u64,
    left: u64,
    max_ms: u64,
    spent_ms: Option<Histogram<u64>>,
}

impl Tally {
    fn add(&mut self, row: &Row) -> rusqlite::Result<()> {
        let (from, to): (u8, u8) = (row.get(1)?, row.get(2)?);
        if from != to {
            if let Some(state) = self.states.get_mut(usize::from(to)) {
                state.entered += 1;
            }
            if let Some(state) = self.states.get_mut(usize::from(from)) {
                state.leave(row.get::<_, i64>(3)? as u64);
            }
        }
        let reason = row.get_ref(4)?.as_str()?;
        if let Some(count) = self.reasons.get_mut(reason) {
            *count += 1;
        } else if !reason.is_empty() && self.reasons.len() < REASONS_MAX {
            self.reasons.insert(reason.to_owned(), 1);
        }
        Ok(())
    }

    fn activity(self, from_ms: u64, to_ms: u64) -> Activity {
        let seconds = to_ms.saturating_sub(from_ms) as f64 / 1_000.0;
        let states = self.states.iter().enumerate().skip(1).filter(|(_, tally)| tally.entered + tally.left > 0);
        let mut reasons: Vec<_> = self.reasons.into_iter().collect();
        reasons.sort_by(|(a, a_count), (b, b_count)| (Reverse(a_count), a).cmp(&(Reverse(b_count), b)));
        reasons.truncate(REASONS);
        Activity {
            from_ms: from_ms as i64,
            to_ms: to_ms as i64,
            states: states.map(|(state, tally)| tally.activity(state as i32, seconds)).collect(),
            reasons: reasons.into_iter().map(|(reason, count)| ReasonCount { reason, count }).collect(),
        }
    }
}

impl StateTally {
    fn leave(&mut self, spent_ms: u64) {
        self.left += 1;
        self.max_ms = self.max_ms.max(spent_ms);
        let new = || Histogram::new(DIGITS).expect("a valid number of digits");
        // The histogram grows with its values, so none is out of range.
        let _ = self.spent_ms.get_or_insert_with(new).record(spent_ms);
    }

    fn activity(&self, state: i32, seconds: f64) -> StateActivity {
        let percentile = |percent: f64| {
            let at = self.spent_ms.as_ref().map_or(0, |spent_ms| spent_ms.value_at_percentile(percent));
            at.min(self.max_ms) as i64
        };
        StateActivity {
            state,
            entered: self.entered,
            entered_per_s: self.entered as f64 / seconds,
            left: self.left,
            p50_ms: percentile(50.0),
            p90_ms: percentile(90.0),
            p99_ms: percentile(99.0),
            max_ms: self.max_ms as i64,
        }
    }
}
