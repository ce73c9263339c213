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
use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use measured::{Measured, MeasuredRow};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
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
    /// What only this build measures.
    not_compared: &'a [String],
}

const INTERVAL: &str = "95 % t interval of the mean log ratio";

/// Runs all pairs and prints the ratios, those of a figure when it is done.
pub(crate) async fn run(comparison: Comparison, machine: &Machine, json: bool) -> Result<BenchOutcome> {
    let own = std::env::current_exe().context("the path of this program")?;
    let (mut rows, mut not_compared, mut settings) = (Vec::new(), Vec::new(), Value::Null);
    for figure in &comparison.figures {
        let Some(pairs) = comparison.measure(&own, figure).await? else {
            not_compared.push(format!("{figure}: the other build does not have this figure, or an option of this run"));
            continue;
        };
        let compared = compare(&pairs).with_context(|| format!("figure {figure}"))?;
        if !json {
            println!("{}", table(&compared.rows));
        }
        rows.extend(compared.rows);
        not_compared.extend(compared.without_counterpart);
        settings = pairs.into_iter().next_back().map_or(Value::Null, |(ours, _)| ours.settings);
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
            not_compared: &not_compared,
        };
        println!("{}", serde_json::to_string_pretty(&output)?);
    } else {
        println!(
            "Ratio: this build ÷ {}, inverted where lower is better: above 1, this build is better. {INTERVAL} of {} \
             pairs.\nNo worse: the interval is at or above {RATIO_MIN}. Undecided: {RATIO_MIN} lies within it (more pairs \
             narrow it), or there are too few pairs.",
            comparison.other.display(),
            comparison.pairs
        );
        not_compared.iter().for_each(|figure| println!("Not compared: {figure}."));
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

    /// All pairs of one figure; `None`: the other program does not know the figure.
    async fn measure(&self, own: &Path, figure: &str) -> Result<Option<Vec<(Measured, Measured)>>> {
        let arguments = self.arguments_of(figure);
        let by_own = async || Measured::by(own, &arguments).await?.context("this build knows its figures");
        let mut pairs = Vec::new();
        for pair in 0..self.pairs {
            eprintln!("bench: {figure}, pair {} of {} …", pair + 1, self.pairs);
            let other_first = pair % 2 == 1;
            let early = if other_first { None } else { Some(by_own().await?) };
            let Some(other) = Measured::by(&self.other, &arguments).await? else { return Ok(None) };
            let ours = match early {
                Some(ours) => ours,
                None => by_own().await?,
            };
            pairs.push((ours, other));
        }
        Ok(Some(pairs))
    }
}

/// The rows of one figure that both builds print.
struct ComparedFigure {
    rows: Vec<ComparedRow>,
    /// What one of the builds printed more.
    without_counterpart: Vec<String>,
}

/// Matches rows by their order, since a build may word them differently, up to the first that has another unit.
fn compare(pairs: &[(Measured, Measured)]) -> Result<ComparedFigure> {
    let Some((first, _)) = pairs.first() else { bail!("there is no pair") };
    let count =
        pairs.iter().map(|(ours, other)| matched(&first.rows, &ours.rows).min(matched(&first.rows, &other.rows)));
    let count = count.min().unwrap_or(0);
    ensure!(count > 0, "the builds print different rows");
    let row = |(index, row): (usize, &MeasuredRow)| {
        let value = |of: &Measured| of.rows[index].value.context("a row without a value");
        let values: Vec<(f64, f64)> =
            pairs.iter().map(|(ours, other)| Ok((value(ours)?, value(other)?))).collect::<Result<_>>()?;
        let better = row.better.context("this build prints which values are better")?;
        Ok(ComparedRow::new(row.figure.clone(), row.what.clone(), row.unit.clone(), better, &values))
    };
    let rows = first.rows[..count].iter().enumerate().map(row).collect::<Result<_>>()?;
    let name = |row: &MeasuredRow| format!("{}: {}", row.figure, row.what);
    let without_counterpart =
        pairs.iter().flat_map(|(ours, other)| ours.rows.iter().skip(count).chain(other.rows.iter().skip(count)));
    let without_counterpart = without_counterpart.map(name).collect::<BTreeSet<_>>().into_iter().collect();
    Ok(ComparedFigure { rows, without_counterpart })
}

/// How many rows from the first have the same units.
fn matched(rows: &[MeasuredRow], others: &[MeasuredRow]) -> usize {
    rows.iter().zip(others).take_while(|(row, other)| row.unit == other.unit).count()
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

    fn measured(rows: Vec<MeasuredRow>) -> Measured {
        Measured { settings: Value::Null, rows }
    }

    #[test]
    fn rows_are_matched_by_order_and_judged_as_this_build_says() {
        let ours = vec![row("rate", "/s", Some(Better::Higher), 100.0), row("time", "ms", Some(Better::Lower), 2.0)];
        let other = vec![row("the rate", "/s", None, 50.0), row("the time", "ms", None, 1.0)];
        let rows = compare(&vec![(measured(ours), measured(other)); PAIRS_MIN]).unwrap().rows;
        let verdicts: Vec<(&str, Verdict)> = rows.iter().map(|row| (row.what.as_str(), row.verdict)).collect();
        assert_eq!(verdicts, [("rate", Verdict::NoWorse), ("time", Verdict::Worse)]);
        let text = table(&rows).to_string();
        assert!(text.contains("WORSE") && text.contains("no worse"), "{text}");
    }

    #[test]
    fn a_row_that_an_older_build_lacks_is_named_and_the_others_are_compared() {
        let rate = row("rate", "/s", Some(Better::Higher), 100.0);
        let ours = measured(vec![rate.clone(), row("time", "ms", Some(Better::Lower), 2.0)]);
        let older = compare(&vec![(ours.clone(), measured(vec![rate.clone()])); PAIRS_MIN]).unwrap();
        assert_eq!((older.rows.len(), older.without_counterpart), (1, vec!["f: time".to_owned()]));
        let reworded = row("size", "B", None, 1.0);
        let changed = compare(&vec![(ours, measured(vec![rate, reworded])); PAIRS_MIN]).unwrap();
        assert_eq!(
            (changed.rows.len(), changed.without_counterpart),
            (1, vec!["f: size".to_owned(), "f: time".to_owned()])
        );
    }

    #[test]
    fn builds_without_a_common_row_are_refused() {
        let ours = measured(vec![row("rate", "/s", Some(Better::Higher), 100.0)]);
        assert!(compare(&[(ours.clone(), measured(vec![row("rate", "ms", None, 50.0)]))]).is_err());
        assert!(compare(&[(ours, measured(Vec::new()))]).is_err());
    }

    #[tokio::test]
    async fn a_figure_that_the_other_program_does_not_know_is_not_compared() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let own = program(
            "own",
            r#"echo '{"settings":{},"rows":[{"figure":"new","what":"w","unit":"/s","better":"higher","ours":1}]}'"#,
        );
        let comparison = |other: PathBuf| Comparison {
            verb: "queue",
            figures: vec!["new".to_owned()],
            arguments: Vec::new(),
            other,
            pairs: 2,
        };
        let older = comparison(program("older", "echo 'error: invalid value' >&2; exit 2"));
        assert!(older.measure(&own, "new").await.unwrap().is_none());
        let same = comparison(own.clone());
        assert_eq!(same.measure(&own, "new").await.unwrap().map(|pairs| pairs.len()), Some(2));
        let broken = comparison(program("broken", "echo 'no Redis' >&2; exit 1"));
        assert!(broken.measure(&own, "new").await.unwrap_err().to_string().contains("no Redis"));
    }
}
