//! A value over time.

/// Values and the seconds at which they were read, rising.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(Vec<(f64, f64)>);

impl Series {
    pub(super) fn push(&mut self, at_s: f64, value: f64) {
        self.0.push((at_s, value));
    }

    /// The greatest value from this time on; 0 without any.
    pub(super) fn max_from(&self, from_s: f64) -> f64 {
        self.0.iter().filter(|(at_s, _)| *at_s >= from_s).map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// The greatest value of each whole period between two times, counted back from the later one. Each has the time at which
    /// its period ends.
    pub(super) fn maxima(&self, from_s: f64, to_s: f64, period_s: f64) -> Series {
        let periods = ((to_s - from_s) / period_s).floor() as usize;
        let maximum = |number: usize| {
            let end_s = to_s - (periods - number) as f64 * period_s;
            let within = self.0.iter().filter(|(at_s, _)| (end_s - period_s..end_s).contains(at_s));
            within.map(|(_, value)| *value).reduce(f64::max).map(|value| (end_s, value))
        };
        Series((1..=periods).filter_map(maximum).collect())
    }

    /// How much a straight line through the values rises from the first one to the last one, as a share of their mean; 0 with
    /// fewer than two values.
    pub(super) fn rise(&self) -> f64 {
        let count = self.0.len() as f64;
        let (Some((first_s, _)), Some((last_s, _))) = (self.0.first(), self.0.last()) else { return 0.0 };
        let mean = |of: fn(&(f64, f64)) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let (mean_s, mean_value) = (mean(|(at_s, _)| *at_s), mean(|(_, value)| *value));
        let both: f64 = self.0.iter().map(|(at_s, value)| (at_s - mean_s) * (value - mean_value)).sum();
        let times: f64 = self.0.iter().map(|(at_s, _)| (at_s - mean_s).powi(2)).sum();
        if times > 0.0 && mean_value > 0.0 { both / times * (last_s - first_s) / mean_value } else { 0.0 }
    }

    /// The values, rounded.
    pub(super) fn rounded(&self) -> Vec<f64> {
        self.0.iter().map(|(_, value)| (value * 10.0).round() / 10.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maxima_of_a_saw_are_flat_and_a_slope_is_seen() {
        let (mut saw, mut slope) = (Series::default(), Series::default());
        for second in 0..600 {
            saw.push(f64::from(second), 50.0 + f64::from(second % 60));
            slope.push(f64::from(second), 1_000.0 + f64::from(second));
        }
        let maxima = saw.maxima(200.0, 600.0, 60.0);
        assert_eq!((maxima.rounded(), maxima.rise()), (vec![109.0; 6], 0.0));
        assert_eq!(saw.max_from(590.0), 109.0);
        // From 1,299 at 300 s to 1,599 at 600 s; the mean is 1,449.
        assert!((slope.maxima(200.0, 600.0, 60.0).rise() - 300.0 / 1_449.0).abs() < 1e-9);
        assert_eq!(Series::default().rise(), 0.0);
    }
}
