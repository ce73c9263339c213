//! The statistics of paired runs: a 95 % confidence interval of a ratio.

use serde::Serialize;

/// 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same quantile of the normal distribution, which t approaches.
const Z_975: f64 = 1.959_964;

/// A ratio and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    /// The geometric mean of the ratios.
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The interval of the ratios of paired runs: a t interval of the mean of their logarithms, which assumes that a run
/// varies by factors (log-normally). `None`: fewer than two pairs, or a ratio that is zero or infinite.
pub(super) fn interval(ratios: &[f64]) -> Option<Interval> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    if logs.len() < 2 || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = t_975(logs.len() - 1) * (variance / count).sqrt();
    Some(Interval { ratio: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
}

/// The 97.5 % quantile of the t distribution with this number of degrees of freedom, at least one.
fn t_975(degrees: usize) -> f64 {
    // Beyond the table, two terms of the expansion in 1 / degrees are exact to 0.001.
    let expanded = || {
        let (n, z) = (degrees as f64, Z_975);
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
    };
    T_975.get(degrees.saturating_sub(1)).copied().unwrap_or_else(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1, t(2) = 4.303, half width 0.24844.
        let ratios = [0.1_f64, 0.2, 0.3].map(f64::exp);
        let Interval { ratio, low, high } = interval(&ratios).unwrap();
        let close = |value: f64, expected: f64| assert!((value.ln() - expected).abs() < 1e-4, "{value}");
        close(ratio, 0.2);
        close(low, 0.2 - 0.248_43);
        close(high, 0.2 + 0.248_43);
    }

    #[test]
    fn equal_ratios_have_an_interval_of_no_width() {
        let Interval { ratio, low, high } = interval(&[0.5; 15]).unwrap();
        for value in [ratio, low, high] {
            assert!((value - 0.5).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn without_two_positive_ratios_there_is_none() {
        assert_eq!(interval(&[1.0]), None);
        assert_eq!(interval(&[1.0, 0.0]), None);
        assert_eq!(interval(&[1.0, f64::INFINITY]), None);
        assert_eq!(interval(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn t_approaches_the_normal_quantile() {
        assert_eq!((t_975(1), t_975(14), t_975(30)), (12.706, 2.145, 2.042));
        assert!((t_975(31) - 2.0395).abs() < 1e-3 && (t_975(100) - 1.984).abs() < 1e-3);
    }
}
