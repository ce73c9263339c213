//! One compared row: the values of both builds, their ratio, and the verdict.

use super::interval::{Interval, interval};
use crate::report::Better;
use serde::Serialize;

/// A build is no worse when its ratio is at least this.
pub(super) const RATIO_MIN: f64 = 0.97;
/// Fewer pairs decide nothing: the variance of so few runs is itself uncertain.
pub(super) const PAIRS_MIN: usize = 15;

/// What the interval of the ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The whole interval is at or above 0.97.
    NoWorse,
    /// The whole interval is below 0.97.
    Worse,
    /// 0.97 lies within the interval, or there is none: more pairs are needed.
    Undecided,
    /// Undecided, because there are fewer than 15 pairs.
    TooFewPairs,
}

impl Verdict {
    fn of(interval: Option<Interval>, pairs: usize) -> Verdict {
        match interval {
            _ if pairs < PAIRS_MIN => Verdict::TooFewPairs,
            Some(Interval { low, .. }) if low >= RATIO_MIN => Verdict::NoWorse,
            Some(Interval { high, .. }) if high < RATIO_MIN => Verdict::Worse,
            _ => Verdict::Undecided,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Verdict::NoWorse => "no worse",
            Verdict::Worse => "WORSE",
            Verdict::Undecided => "undecided",
            Verdict::TooFewPairs => "undecided (fewer than 15 pairs)",
        }
    }
}

/// A row of both builds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ComparedRow {
    pub(super) figure: String,
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) better: Better,
    /// The values of this build, pair by pair.
    pub(super) ours: Vec<f64>,
    /// Those of the other build.
    pub(super) other: Vec<f64>,
    /// The ratio of the builds, inverted where lower values are better: above 1, this build is better.
    pub(super) interval: Option<Interval>,
    pub(super) verdict: Verdict,
}

impl ComparedRow {
    pub(super) fn new(figure: String, what: String, unit: String, better: Better, pairs: &[(f64, f64)]) -> ComparedRow {
        let ratios: Vec<f64> = pairs.iter().map(|(ours, other)| ratio(better, *ours, *other)).collect();
        let interval = interval(&ratios);
        let verdict = Verdict::of(interval, pairs.len());
        let (ours, other) = pairs.iter().copied().unzip();
        ComparedRow { figure, what, unit, better, ours, other, interval, verdict }
    }
}

/// Above 1, ours is better. Two zeros are equal.
fn ratio(better: Better, ours: f64, other: f64) -> f64 {
    match better {
        _ if ours == other => 1.0,
        Better::Higher => ours / other,
        Better::Lower => other / ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict of these pairs, repeated until there are enough.
    fn verdict(better: Better, pairs: &[(f64, f64)]) -> Verdict {
        let enough = pairs.repeat(PAIRS_MIN);
        ComparedRow::new("f".into(), "w".into(), "u".into(), better, &enough).verdict
    }

    #[test]
    fn fewer_than_fifteen_pairs_decide_nothing() {
        for (count, expected) in [(14, Verdict::TooFewPairs), (15, Verdict::Worse)] {
            let pairs = [(50.0, 100.0)].repeat(count);
            let row = ComparedRow::new("f".into(), "w".into(), "u".into(), Better::Higher, &pairs);
            assert_eq!(row.verdict, expected, "{count} pairs");
        }
    }

    #[test]
    fn higher_rates_and_lower_times_are_better() {
        let grown = [(200.0, 100.0), (220.0, 100.0), (210.0, 100.0)];
        assert_eq!(verdict(Better::Higher, &grown), Verdict::NoWorse);
        assert_eq!(verdict(Better::Lower, &grown), Verdict::Worse);
        let row = ComparedRow::new("f".into(), "w".into(), "ms".into(), Better::Lower, &[(1.0, 2.0), (1.0, 2.0)]);
        assert_eq!(row.interval.unwrap().ratio, 2.0);
    }

    #[test]
    fn an_interval_around_the_bound_decides_nothing() {
        assert_eq!(verdict(Better::Higher, &[(80.0, 100.0), (120.0, 100.0), (97.0, 100.0)]), Verdict::Undecided);
        assert_eq!(verdict(Better::Higher, &[(0.0, 1.0), (1.0, 1.0)]), Verdict::Undecided, "a ratio of zero");
    }

    #[test]
    fn a_small_loss_within_the_bound_is_no_worse() {
        assert_eq!(verdict(Better::Higher, &[(98.0, 100.0), (98.1, 100.0), (98.2, 100.0)]), Verdict::NoWorse);
        assert_eq!(verdict(Better::Higher, &[(96.0, 100.0), (96.1, 100.0), (95.9, 100.0)]), Verdict::Worse);
        assert_eq!(verdict(Better::Lower, &[(0.0, 0.0), (0.0, 0.0)]), Verdict::NoWorse, "two zeros are equal");
    }
}
