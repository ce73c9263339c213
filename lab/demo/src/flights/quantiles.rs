//! Quantiles of measured times.

use serde::Serialize;

/// A distribution, in the unit that the field's name says.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// The quantiles of these values; zeros without any.
pub(super) fn quantiles(mut values: Vec<f64>) -> Quantiles {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).or(values.last()).copied().unwrap_or(0.0);
    Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}
