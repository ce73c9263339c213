//! One measurement, and the median of several.

use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Longer than any call may take.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// What one client did: messages and the latencies of its calls.
pub(crate) struct CallStats {
    pub(crate) messages: u64,
    pub(crate) latency_us: Histogram<u64>,
    /// When its last call ended.
    pub(crate) last: Instant,
}

impl CallStats {
    pub(crate) fn new() -> CallStats {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("these bounds are allowed");
        CallStats { messages: 0, latency_us, last: Instant::now() }
    }

    /// Records a call that took `latency` and handled `messages`.
    pub(crate) fn note(&mut self, messages: usize, latency: Duration) {
        self.messages += messages as u64;
        self.latency_us.saturating_record(latency.as_micros() as u64);
        self.last = Instant::now();
    }

    pub(crate) fn add(&mut self, other: &CallStats) {
        self.messages += other.messages;
        self.latency_us.add(&other.latency_us).expect("all have the same bounds");
        self.last = self.last.max(other.last);
    }

    /// A sample with this value and the quantiles of the latency.
    pub(crate) fn sample(&self, value: f64) -> Sample {
        Sample { value, p50_ms: self.quantile_ms(0.5), p99_ms: self.quantile_ms(0.99) }
    }

    pub(crate) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.latency_us.is_empty()).then(|| self.latency_us.value_at_quantile(quantile) as f64 / 1_000.0)
    }
}

/// The statistics of clients that ran at the same time.
pub(crate) struct TimedStats {
    pub(crate) stats: CallStats,
    /// From the common start to the end of the last call.
    pub(crate) elapsed: Duration,
}

impl TimedStats {
    /// For clients that started at `began`.
    pub(crate) fn since(began: Instant, stats: CallStats) -> TimedStats {
        TimedStats { elapsed: stats.last.saturating_duration_since(began), stats }
    }

    /// Adds another run, as if it had followed immediately.
    pub(crate) fn add(&mut self, other: &TimedStats) {
        self.stats.add(&other.stats);
        self.elapsed += other.elapsed;
    }

    /// Messages per second.
    pub(crate) fn rate(&self) -> Sample {
        self.stats.sample(self.stats.messages as f64 / self.elapsed.as_secs_f64().max(1e-6))
    }
}

/// One measurement: messages per second, or another value in the unit of the figure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// The measurements of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    pub(crate) const fn new() -> Samples {
        Samples(Vec::new())
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// The sample with the median value (the lower of the two middle ones); `None` without samples.
    pub(crate) fn median(&self) -> Option<Sample> {
        let mut sorted = self.0.clone();
        sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        self.0.iter().map(|sample| sample.value).collect()
    }
}

/// The median of these values, the lower of the two middle ones; 0 without any.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample_that_was_taken() {
        let mut samples = Samples::new();
        assert!(samples.median().is_none());
        for value in [3.0, 1.0, 2.0] {
            samples.push(Sample { value, p50_ms: Some(value), p99_ms: None });
        }
        let median = samples.median().unwrap();
        assert_eq!((median.value, median.p50_ms), (2.0, Some(2.0)));
        samples.push(Sample { value: 9.0, ..Sample::default() });
        assert_eq!(samples.median().unwrap().value, 2.0);
    }

    #[test]
    fn calls_add_up_to_a_rate() {
        let began = Instant::now();
        let mut stats = CallStats::new();
        stats.note(32, Duration::from_millis(2));
        let mut other = CallStats::new();
        other.note(32, Duration::from_millis(4));
        other.last = began + Duration::from_millis(500);
        stats.add(&other);
        let sample = TimedStats::since(began, stats).rate();
        assert_eq!(sample.value, 128.0);
        assert!((1.9..2.1).contains(&sample.p50_ms.unwrap()) && (3.9..4.1).contains(&sample.p99_ms.unwrap()));
    }
}
