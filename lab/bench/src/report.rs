//! The result: rows, as a table for people or as one JSON object.

use crate::machine::Machine;
use crate::peers::NOT_INSTALLED;
use crate::sample::{Sample, Samples};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The goal of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Ours ÷ reference at least this.
    RatioAtLeast(f64),
    /// Ours ÷ reference at most this.
    RatioAtMost(f64),
    /// Ours at least this, in the row's unit.
    AtLeast(f64),
    /// Ours at most this, in the row's unit.
    AtMost(f64),
    /// Ours less than this, in the row's unit.
    Below(f64),
    /// Shown for comparison only.
    None,
}

impl Goal {
    fn met(self, ours: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Goal::RatioAtLeast(least) => ratio.map(|ratio| ratio >= least),
            Goal::RatioAtMost(most) => ratio.map(|ratio| ratio <= most),
            Goal::AtLeast(least) => Some(ours >= least),
            Goal::AtMost(most) => Some(ours <= most),
            Goal::Below(bound) => Some(ours < bound),
            Goal::None => None,
        }
    }

    /// Which way a row with this goal improves. Without a goal the unit decides: rates grow, everything else shrinks.
    fn better(self, unit: &str) -> Better {
        match self {
            Goal::RatioAtLeast(_) | Goal::AtLeast(_) => Better::Higher,
            Goal::RatioAtMost(_) | Goal::AtMost(_) | Goal::Below(_) => Better::Lower,
            Goal::None if unit.contains('/') => Better::Higher,
            Goal::None => Better::Lower,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Goal::RatioAtLeast(least) => format!("≥ {} ×", factor(least)),
            Goal::RatioAtMost(most) => format!("≤ {} ×", factor(most)),
            Goal::AtLeast(least) => format!("≥ {least} {unit}"),
            Goal::AtMost(most) => format!("≤ {most} {unit}"),
            Goal::Below(bound) => format!("< {bound} {unit}"),
            Goal::None => "–".to_owned(),
        }
    }
}

/// One decimal, or as many as the factor has.
fn factor(factor: f64) -> String {
    let (one, all) = (format!("{factor:.1}"), factor.to_string());
    if all.len() > one.len() { all } else { one }
}

/// Which values of a row are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// The other side of a row.
pub(crate) enum Reference<'a> {
    /// Its name and samples.
    Measured(&'a str, &'a Samples),
    /// Its name and why there are no samples.
    Missing(&'a str, &'a str),
    /// There is none: the goal is absolute.
    None,
}

impl<'a> Reference<'a> {
    /// A peer; without samples it is not installed.
    pub(crate) fn peer(name: &'a str, samples: &'a Samples) -> Reference<'a> {
        match samples.median() {
            Some(_) => Reference::Measured(name, samples),
            None => Reference::Missing(name, NOT_INSTALLED),
        }
    }
}

/// One row of the result.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    figure: String,
    what: String,
    unit: &'static str,
    better: Better,
    ours: Option<f64>,
    ours_p50_ms: Option<f64>,
    ours_p99_ms: Option<f64>,
    against: Option<String>,
    reference: Option<f64>,
    reference_p50_ms: Option<f64>,
    reference_p99_ms: Option<f64>,
    ratio: Option<f64>,
    goal: String,
    met: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    details: Map<String, Value>,
    /// Details that the table shows, too.
    #[serde(skip)]
    shown: Vec<String>,
}

impl Row {
    /// The medians side by side.
    pub(crate) fn new(
        what: impl Into<String>,
        unit: &'static str,
        ours: &Samples,
        reference: Reference<'_>,
        goal: Goal,
    ) -> Row {
        let our = ours.median().unwrap_or_default();
        let mut details = Map::from_iter([("ours_runs".to_owned(), rounded(ours))]);
        let (against, theirs, note) = match reference {
            Reference::Measured(name, samples) => {
                details.insert("reference_runs".to_owned(), rounded(samples));
                (Some(name.to_owned()), samples.median(), None)
            }
            Reference::Missing(name, why) => (Some(name.to_owned()), None, Some(why.to_owned())),
            Reference::None => (None, None, None),
        };
        let ratio = theirs.filter(|theirs| theirs.value > 0.0).map(|theirs| our.value / theirs.value);
        let Sample { p50_ms: reference_p50_ms, p99_ms: reference_p99_ms, .. } = theirs.unwrap_or_default();
        Row {
            figure: String::new(),
            what: what.into(),
            unit,
            better: goal.better(unit),
            ours: Some(our.value),
            ours_p50_ms: our.p50_ms,
            ours_p99_ms: our.p99_ms,
            against,
            reference: theirs.map(|theirs| theirs.value),
            reference_p50_ms,
            reference_p99_ms,
            ratio,
            goal: goal.text(unit),
            met: goal.met(our.value, ratio),
            note,
            details,
            shown: Vec::new(),
        }
    }

    /// A value that was measured once, without a reference.
    pub(crate) fn once(what: impl Into<String>, unit: &'static str, value: f64, goal: Goal) -> Row {
        let mut samples = Samples::new();
        samples.push(Sample { value, ..Sample::default() });
        Row::new(what, unit, &samples, Reference::None, goal)
    }

    /// Names the figure that the row belongs to.
    pub(crate) fn of(self, figure: &str) -> Row {
        Row { figure: figure.to_owned(), ..self }
    }

    /// Adds a detail, for `--json`.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a detail that the table shows, too. It is no separate row: two builds are compared only if they print the same rows.
    pub(crate) fn with_shown(mut self, name: &str, value: f64) -> Row {
        self.shown.push(format!("{name} {}", number(value)));
        self.with(name, value)
    }
}

fn rounded(samples: &Samples) -> Value {
    samples.values().into_iter().map(|value| (value * 100.0).round() / 100.0).collect()
}

/// The conditions under which all figures of a run were measured.
pub(crate) struct Settings {
    /// For `--json`.
    pub(crate) fields: Value,
    /// For people, in one line.
    pub(crate) line: String,
}

/// What `--json` prints.
#[derive(Serialize)]
struct BenchOutput<'a> {
    machine: &'a Machine,
    settings: &'a Value,
    rows: &'a [Row],
}

/// Prints the rows on stdout.
pub(crate) fn print(rows: &[Row], machine: &Machine, settings: &Settings, json: bool) -> anyhow::Result<()> {
    if json {
        let output = BenchOutput { machine, settings: &settings.fields, rows };
        println!("{}", serde_json::to_string_pretty(&output)?);
        return Ok(());
    }
    println!("{}", table(rows));
    println!("{}; {}.", machine.line(), settings.line);
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["figure", "", "ours", "p50 / p99 ms", "reference", "p50 / p99 ms", "ratio", "goal", "met"]);
    for row in rows {
        let reference = match (&row.against, row.reference, &row.note) {
            (Some(name), Some(value), _) => format!("{} {}\n{name}", number(value), row.unit),
            (Some(name), None, note) => format!("{name}\n{}", note.as_deref().unwrap_or("")),
            _ => String::new(),
        };
        let what: Vec<&str> = std::iter::once(&row.what).chain(&row.shown).map(String::as_str).collect();
        table.add_row([
            row.figure.clone(),
            what.join("\n"),
            row.ours.map_or(String::new(), |value| format!("{} {}", number(value), row.unit)),
            quantiles(row.ours_p50_ms, row.ours_p99_ms),
            reference,
            quantiles(row.reference_p50_ms, row.reference_p99_ms),
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.*} ×", if ratio < 0.1 { 3 } else { 2 })),
            row.goal.clone(),
            row.met.map_or("–", |met| if met { "yes" } else { "NO" }).to_owned(),
        ]);
    }
    for column in [2, 3, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn quantiles(p50_ms: Option<f64>, p99_ms: Option<f64>) -> String {
    match (p50_ms, p99_ms) {
        (Some(p50), Some(p99)) => format!("{p50:.2} / {p99:.2}"),
        _ => String::new(),
    }
}

/// Decimals only for small values.
pub(crate) fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { grouped(value.round() as u64) }
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(value: f64) -> Samples {
        let mut samples = Samples::new();
        samples.push(Sample { value, p50_ms: Some(1.0), p99_ms: Some(2.0) });
        samples
    }

    #[test]
    fn a_row_shows_whether_it_meets_its_goal() {
        let ours = samples(120_000.0);
        let met = |reference, goal| Row::new("w", "/s", &ours, reference, goal).met;
        let floor = samples(100_000.0);
        assert_eq!(met(Reference::Measured("floor", &floor), Goal::RatioAtLeast(1.0)), Some(true));
        assert_eq!(met(Reference::Measured("floor", &floor), Goal::RatioAtMost(1.1)), Some(false));
        assert_eq!(met(Reference::Measured("floor", &floor), Goal::None), None);
        assert_eq!(met(Reference::None, Goal::Below(120_000.0)), Some(false));
        assert_eq!(met(Reference::None, Goal::AtMost(120_000.0)), Some(true));
        assert_eq!(met(Reference::None, Goal::AtLeast(120_001.0)), Some(false));
    }

    #[test]
    fn a_missing_reference_is_named_and_meets_no_goal() {
        let none = Samples::new();
        let reference = Reference::peer("BullMQ", &none);
        let row = Row::new("w", "/s", &samples(1.0), reference, Goal::RatioAtLeast(1.0));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["met"], &json["reference"], &json["ratio"]), (&Value::Null, &Value::Null, &Value::Null));
        assert!(table(&[row]).to_string().contains("lab/bench/peers/install"));
    }

    #[test]
    fn a_shown_detail_is_in_the_table_and_in_json() {
        let row = Row::new("w", "/s", &samples(1.0), Reference::None, Goal::None);
        let row = row.with("hidden", 5_678.0).with_shown("forks", 1_234.0);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["details"]["forks"], json.get("shown")), (&Value::from(1_234.0), None));
        let printed = table(&[row]).to_string();
        assert!(printed.contains("1,234") && !printed.contains("5,678"), "{printed}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([number(4.25), number(999.6), number(1_234_567.0)], ["4.25", "1,000", "1,234,567"]);
    }
}
