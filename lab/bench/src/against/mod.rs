//! `--against PROGRAM`: is this build slower than another?
//!
//! Both programs run as child processes, alternately (A B, B A, …), so that whatever changes on the machine meets both.
//! Each pair gives one ratio per row. A t interval of their logarithms then shows whether this build is no worse.

mod interval;
mod measured;
mod verdict;

use crate::machine::Machine;
use crate::outcome::BenchOutcome;
use crate::report::number;
use crate::sample::median;
use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use measured::{Measured, MeasuredRow};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use verdict::{ComparedRow, RATIO_MIN, Verdict};

/// What to compare.
pub(crate) struct Comparison {
    /// The verb of `tallystone bench`.
    pub(crate) verb: &'static str,
    /// The figures by name.
    pub(crate) figures: Vec<String>,
    /// Arguments that both programs get.
    pub(crate) arguments: Vec<String>,
    /// The program of the other build.
    pub(crate) other: PathBuf,
    /// Pairs of runs per figure.
    pub(crate) pairs: u32,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    machine: &'a Machine,
    settings: &'a Value,
    against: String,
    pairs: u32,
    interval: &'static str,
    ratio_min: f64,
    rows: &'a [ComparedRow],
}

const INTERVAL: &str = "95 % t interval of the mean log ratio";

/// Runs all pairs and prints the ratios.
pub(crate) async fn run(comparison: Comparison, machine: &Machine, json: bool) -> Result<BenchOutcome> {
    let own = std::env::current_exe().context("the path of this program")?;
    let (mut rows, mut settings) = (Vec::new(), Value::Null);
    for figure in &comparison.figures {
        let arguments = comparison.arguments_of(figure);
        let mut pairs = Vec::new();
        for pair in 0..comparison.pairs {
            eprintln!("bench: {figure}, pair {} of {} …", pair + 1, comparison.pairs);
            let (ours, other) = if pair % 2 == 0 {
                let ours = Measured::by(&own, &arguments).await?;
                (ours, Measured::by(&comparison.other, &arguments).await?)
            } else {
                let other = Measured::by(&comparison.other, &arguments).await?;
                (Measured::by(&own, &arguments).await?, other)
            };
            settings = ours.settings;
            pairs.push((ours.rows, other.rows));
        }
        rows.extend(compare(&pairs).with_context(|| format!("figure {figure}"))?);
    }
    if json {
        let against = comparison.other.display().to_string();
        let pairs = comparison.pairs;
        let output = Output {
            machine,
            settings: &settings,
            against,
            pairs,
            interval: INTERVAL,
            ratio_min: RATIO_MIN,
            rows: &rows,
        };
        println!("{}", serde_json::to_string_pretty(&output)?);
    } else {
        println!("{}", table(&rows));
        println!(
            "Ratio: this build ÷ {}, inverted where lower is better: above 1, this build is better. {INTERVAL} of {} \
             pairs.\nNo worse: the interval is at or above {RATIO_MIN}. Undecided: {RATIO_MIN} lies within it (more pairs \
             narrow it), or there are too few pairs.",
            comparison.other.display(),
            comparison.pairs
        );
        println!("{}; {}.", machine.line(), settings_line(&settings));
    }
    let worse: Vec<String> = rows
        .iter()
        .filter(|row| row.verdict == Verdict::Worse)
        .map(|row| format!("{}: {}", row.figure, row.what))
        .collect();
    Ok(if worse.is_empty() { BenchOutcome::Measured } else { BenchOutcome::Worse(worse) })
}

impl Comparison {
    fn arguments_of(&self, figure: &str) -> Vec<String> {
        let fixed = ["bench", self.verb, "--json", "--only", figure].map(str::to_owned);
        fixed.into_iter().chain(self.arguments.iter().cloned()).collect()
    }
}

/// The rows of one figure, matched by their order: a build may word them differently.
fn compare(pairs: &[(Vec<MeasuredRow>, Vec<MeasuredRow>)]) -> Result<Vec<ComparedRow>> {
    let Some((first, _)) = pairs.first() else { return Ok(Vec::new()) };
    let units = |rows: &[MeasuredRow]| rows.iter().map(|row| row.unit.clone()).collect::<Vec<_>>();
    for (ours, other) in pairs {
        ensure!(
            units(ours) == units(first) && units(other) == units(first),
            "the builds print different rows: {} and {}",
            units(ours).join(", "),
            units(other).join(", ")
        );
    }
    let row = |(index, row): (usize, &MeasuredRow)| {
        let value = |rows: &[MeasuredRow]| rows[index].value.context("a row without a value");
        let values: Vec<(f64, f64)> =
            pairs.iter().map(|(ours, other)| Ok((value(ours)?, value(other)?))).collect::<Result<_>>()?;
        let better = row.better.context("this build prints which values are better")?;
        Ok(ComparedRow::new(row.figure.clone(), row.what.clone(), row.unit.clone(), better, &values))
    };
    first.iter().enumerate().map(row).collect()
}

fn table(rows: &[ComparedRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["figure", "", "this build", "other build", "ratio", "95 % interval", "verdict"]);
    for row in rows {
        let value = |values: &[f64]| format!("{} {}", number(median(values)), row.unit);
        let (ratio, interval) = row.interval.map_or(Default::default(), |interval| {
            (format!("{:.3}", interval.ratio), format!("{:.3} – {:.3}", interval.low, interval.high))
        });
        table.add_row([
            row.figure.clone(),
            row.what.clone(),
            value(&row.ours),
            value(&row.other),
            ratio,
            interval,
            row.verdict.text().to_owned(),
        ]);
    }
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `appendfsync always, messages 20000, …`
fn settings_line(settings: &Value) -> String {
    let fields = settings.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.map(|(name, value)| format!("{name} {}", text(value))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::verdict::PAIRS_MIN;
    use super::*;
    use crate::report::Better;

    fn row(what: &str, unit: &str, better: Option<Better>, value: f64) -> MeasuredRow {
        MeasuredRow { figure: "f".into(), what: what.into(), unit: unit.into(), better, value: Some(value) }
    }

    #[test]
    fn rows_are_matched_by_order_and_judged_as_this_build_says() {
        let ours = vec![row("rate", "/s", Some(Better::Higher), 100.0), row("time", "ms", Some(Better::Lower), 2.0)];
        let other = vec![row("the rate", "/s", None, 50.0), row("the time", "ms", None, 1.0)];
        let rows = compare(&vec![(ours, other); PAIRS_MIN]).unwrap();
        let verdicts: Vec<(&str, Verdict)> = rows.iter().map(|row| (row.what.as_str(), row.verdict)).collect();
        assert_eq!(verdicts, [("rate", Verdict::NoWorse), ("time", Verdict::Worse)]);
        let text = table(&rows).to_string();
        assert!(text.contains("WORSE") && text.contains("no worse"), "{text}");
    }

    #[test]
    fn builds_with_different_rows_are_refused() {
        let ours = vec![row("rate", "/s", Some(Better::Higher), 100.0)];
        let other = vec![row("rate", "ms", None, 50.0)];
        assert!(compare(&[(ours.clone(), other)]).is_err());
        assert!(compare(&[(ours, Vec::new())]).is_err());
    }
}
