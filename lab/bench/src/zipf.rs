//! How often each of many things is used: all alike, or by Zipf's law.

use rand::Rng;
use rand::rngs::SmallRng;

/// The shares of things with the numbers from 0.
pub(crate) struct Shares {
    /// The sums of the shares up to each.
    up_to: Vec<f64>,
}

impl Shares {
    /// The n-th gets a share of 1/n (Zipf's law, s = 1).
    pub(crate) fn zipf(count: usize) -> Shares {
        Shares::by(count, |n| 1.0 / n as f64)
    }

    /// All get the same share.
    pub(crate) fn uniform(count: usize) -> Shares {
        Shares::by(count, |_| 1.0)
    }

    fn by(count: usize, share: impl Fn(usize) -> f64) -> Shares {
        let sum = |sum: &mut f64, n: usize| {
            *sum += share(n);
            Some(*sum)
        };
        Shares { up_to: (1..=count).scan(0.0, sum).collect() }
    }

    /// Draws one.
    pub(crate) fn draw(&self, rng: &mut SmallRng) -> usize {
        let all = self.up_to.last().copied().unwrap_or_default();
        let at = rng.random::<f64>() * all;
        self.up_to.partition_point(|sum| *sum <= at).min(self.up_to.len() - 1)
    }
}
