//! `tallystone counter get COUNTER --by hour`: what was added in each period, with a bar for each.

use super::session::CounterSession;
use super::text::count_text;
use crate::duration::{format_time, now_ms};
use crate::error::CliError;
use crate::table::table;
use crate::text::visible;
use clap::ValueEnum;
use serde::Serialize;
use std::ops::Range;
use tallystone_client::{Period, PeriodSum};

/// The widest bar, in characters.
const BAR_MAX: u64 = 32;
/// Eighths of a character.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// A table with at most this number of periods also has those without adds.
const GAPS_SHOWN_MAX: u64 = 400;

/// The length of the periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Minute,
    Hour,
    Day,
}

/// The sums of a counter's adds.
pub(super) struct Summed {
    pub(super) by: By,
    pub(super) sums: Vec<PeriodSum>,
    /// No add before this time can come any more.
    pub(super) exact_to_ms: u64,
    /// What was requested.
    pub(super) range_ms: Range<u64>,
}

/// A line of `--json`.
#[derive(Serialize)]
struct SumLine {
    #[serde(flatten)]
    sum: PeriodSum,
    /// No add to it can come any more.
    is_final: bool,
}

impl SumLine {
    fn of(sum: PeriodSum, by: By, exact_to_ms: u64) -> SumLine {
        SumLine { sum, is_final: sum.from_ms + by.period().length_ms() <= exact_to_ms }
    }
}

impl By {
    pub(super) fn period(self) -> Period {
        match self {
            By::Minute => Period::Minute,
            By::Hour => Period::Hour,
            By::Day => Period::Day,
        }
    }

    /// The length of a range without a start.
    fn ms_by_default(self) -> u64 {
        let periods = match self {
            By::Minute => 60,
            By::Hour => 24,
            By::Day => 30,
        };
        periods * self.period().length_ms()
    }

    fn name(self) -> &'static str {
        match self {
            By::Minute => "minute",
            By::Hour => "hour",
            By::Day => "day",
        }
    }

    /// The start of a period: the date, and for minutes and hours also the time.
    fn time(self, from_ms: u64) -> String {
        let text = format_time(from_ms);
        let digits = if self == By::Day { "2013-01-01".len() } else { "2013-01-01T10:15".len() };
        text.chars().take(digits).collect::<String>().replace('T', " ")
    }
}

/// Shows the sums of a range; 0: the server chooses its start or end.
pub(super) async fn show(
    counter: &str,
    namespace: &str,
    by: By,
    (from_ms, to_ms): (u64, u64),
    session: &CounterSession,
) -> Result<(), CliError> {
    let now_ms = now_ms();
    // As the server chooses them.
    let last_ms = if to_ms == 0 { now_ms } else { to_ms.min(now_ms) };
    let first_ms = if from_ms == 0 { last_ms.saturating_sub(by.ms_by_default()) } else { from_ms };
    let mut summed = Summed { by, sums: Vec::new(), exact_to_ms: 0, range_ms: first_ms..last_ms };
    let mut page_token = String::new();
    let kept_from_ms = loop {
        let page = session.client.sums(namespace, counter, by.period(), from_ms, to_ms, &page_token);
        let read = session.call(namespace, page).await?;
        summed.exact_to_ms = read.exact_to_ms;
        // A program gets each page as it comes.
        if session.output.json {
            let lines: Vec<SumLine> =
                read.page.items.iter().map(|sum| SumLine::of(*sum, by, read.exact_to_ms)).collect();
            session.output.many(&lines, |_| String::new())?;
        } else {
            summed.sums.extend(read.page.items);
        }
        page_token = read.page.next_page_token;
        if page_token.is_empty() {
            break read.kept_from_ms;
        }
    };
    match summed.sums.is_empty() {
        _ if session.output.json => {}
        true => session.output.line(&format!("No adds to {} in this time.", visible(counter)))?,
        false => session.output.line(&summed.text())?,
    }
    if first_ms < kept_from_ms {
        let kept_from = format_time(kept_from_ms);
        let remark =
            format!("Adds before {kept_from} are older than `delete after` of the namespace and may be missing.");
        session.output.remark(&remark)?;
    }
    Ok(())
}

impl Summed {
    /// A table, the total, and to what time it is exact.
    pub(super) fn text(&self) -> String {
        let largest = self.sums.iter().map(|sum| sum.sum.unsigned_abs()).max().unwrap_or_default();
        let row = |sum: &PeriodSum| {
            vec![
                self.by.time(sum.from_ms),
                count_text(sum.sum),
                count_text(sum.adds as i64),
                bar(sum.sum.unsigned_abs(), largest),
            ]
        };
        let shown =
            table(&[&format!("{} (UTC)", self.by.name()), "#sum", "#adds", ""], self.with_gaps().iter().map(row));
        format!("{shown}\n{}", self.total())
    }

    /// The periods, with those between them that have no adds, unless these are very many.
    fn with_gaps(&self) -> Vec<PeriodSum> {
        let length_ms = self.by.period().length_ms();
        let (Some(first), Some(last)) = (self.sums.first(), self.sums.last()) else { return Vec::new() };
        let periods = (last.from_ms - first.from_ms) / length_ms + 1;
        if periods > GAPS_SHOWN_MAX {
            return self.sums.clone();
        }
        let mut sums = self.sums.iter().peekable();
        let all = (0..periods).map(|number| first.from_ms + number * length_ms);
        all.map(|from_ms| {
            let found = sums.next_if(|sum| sum.from_ms == from_ms).copied();
            found.unwrap_or(PeriodSum { from_ms, sum: 0, adds: 0 })
        })
        .collect()
    }

    fn total(&self) -> String {
        let length_ms = self.by.period().length_ms();
        let sum: i128 = self.sums.iter().map(|sum| i128::from(sum.sum)).sum();
        let adds: u64 = self.sums.iter().map(|sum| sum.adds).sum();
        let Some(last) = self.sums.last() else { return String::new() };
        // The sums are of whole periods.
        let begin_ms = self.range_ms.start / length_ms * length_ms;
        let per_s = adds as f64 * 1e3 / self.range_ms.end.saturating_sub(begin_ms).max(1) as f64;
        let sum = i64::try_from(sum).map_or_else(|_| sum.to_string(), count_text);
        let adds = count_text(adds as i64);
        let is_exact = last.from_ms + length_ms <= self.exact_to_ms;
        let open = match self.exact_to_ms {
            _ if is_exact => "these sums are exact".to_owned(),
            0 => "not exact yet".to_owned(),
            to_ms => format!("exact to {}", format_time(to_ms)),
        };
        format!("{sum} in {adds} adds, {per_s:.2} adds/s; {open}")
    }
}

/// A bar for a share of the largest.
fn bar(size: u64, largest: u64) -> String {
    let eighths = u128::from(size) * u128::from(BAR_MAX) * 8 / u128::from(largest.max(1));
    // Whatever is not zero can be seen.
    let eighths = if size > 0 { eighths.max(1) as usize } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn sum(from_ms: u64, sum: i64, adds: u64) -> PeriodSum {
        PeriodSum { from_ms, sum, adds }
    }

    #[test]
    fn n16_each_period_has_a_bar_and_gaps_are_shown() {
        let sums = vec![sum(DAY_MS, 8, 4), sum(3 * DAY_MS, -16, 2), sum(4 * DAY_MS, 1, 1)];
        let text = Summed { by: By::Day, sums, exact_to_ms: 4 * DAY_MS, range_ms: DAY_MS + 5..DAY_MS + 14_000 }.text();
        let full = "█".repeat(16);
        let lines = [
            "DAY (UTC)   SUM  ADDS".to_owned(),
            format!("1970-01-02    8     4  {full}"),
            "1970-01-03    0     0".to_owned(),
            format!("1970-01-04  -16     2  {full}{full}"),
            "1970-01-05    1     1  ██".to_owned(),
            "-7 in 7 adds, 0.50 adds/s; exact to 1970-01-05T00:00:00.000Z".to_owned(),
        ];
        assert_eq!(text.lines().map(str::trim_end).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn n16_very_many_gaps_are_not_shown() {
        let sums = vec![sum(0, 1, 1), sum(60_000 * GAPS_SHOWN_MAX, i64::MAX, 1)];
        let summed = Summed { by: By::Minute, sums: sums.clone(), exact_to_ms: u64::MAX, range_ms: 0..u64::MAX };
        assert_eq!(summed.with_gaps(), sums);
        let text = summed.text();
        assert!(text.contains("1970-01-01 00:00") && text.contains('▏'), "{text}");
        assert!(text.ends_with("9223372036854775808 in 2 adds, 0.00 adds/s; these sums are exact"), "{text}");
    }
}
