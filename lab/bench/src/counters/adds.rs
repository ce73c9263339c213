//! What is added to which counter: by Zipf's law, with tokens as callers make them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a token as tallystone-client draws it: a UUIDv7 in hexadecimal.
pub(super) const TOKEN_BYTES: usize = 32;

/// Something to add.
pub(super) struct Add {
    pub(super) counter: String,
    pub(super) delta: i64,
    /// None for who counts without.
    pub(super) token: Option<String>,
}

/// Counters, and how often each is met: the n-th gets a share of 1/n (Zipf's law, s = 1).
pub(super) struct Counters {
    names: Vec<String>,
    /// Sums of the harmonic series.
    up_to: Vec<f64>,
}

impl Counters {
    pub(super) fn zipf(count: usize) -> Arc<Counters> {
        let sum = |sum: &mut f64, n: usize| {
            *sum += 1.0 / n as f64;
            Some(*sum)
        };
        let names = (1..=count).map(|n| format!("counter-{n:08}")).collect();
        Arc::new(Counters { names, up_to: (1..=count).scan(0.0, sum).collect() })
    }

    /// Their names, the most often met first.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn draw(&self, rng: &mut SmallRng) -> u32 {
        let all = self.up_to.last().copied().unwrap_or_default();
        let at = rng.random::<f64>() * all;
        let number = self.up_to.partition_point(|sum| *sum <= at);
        number.min(self.names.len() - 1) as u32
    }
}

/// The adds of one caller.
pub(super) struct Source {
    counters: Arc<Counters>,
    rng: SmallRng,
    token_bytes: Option<RangeInclusive<usize>>,
    /// Which counters are met next, the last first, as far as they are drawn already.
    drawn: Vec<u32>,
}

impl Source {
    /// The seed decides, tokens apart.
    pub(super) fn new(counters: &Arc<Counters>, seed: u64) -> Source {
        let rng = SmallRng::seed_from_u64(seed);
        let token_bytes = Some(TOKEN_BYTES..=TOKEN_BYTES);
        Source { counters: counters.clone(), rng, token_bytes, drawn: Vec::new() }
    }

    /// With tokens of these lengths, each as often as any other.
    pub(super) fn with_token_bytes(self, token_bytes: RangeInclusive<usize>) -> Source {
        Source { token_bytes: Some(token_bytes), ..self }
    }

    /// Adds as best effort takes them.
    pub(super) fn without_tokens(self) -> Source {
        Source { token_bytes: None, ..self }
    }

    /// So many counters are drawn now, and not while adds are measured: a draw takes as long as many an add.
    pub(super) fn drawn_ahead(mut self, count: usize) -> Source {
        self.drawn = (0..count).map(|_| self.counters.draw(&mut self.rng)).collect();
        self
    }

    pub(super) fn counter(&mut self) -> String {
        let number = self.drawn.pop().unwrap_or_else(|| self.counters.draw(&mut self.rng));
        self.counters.names[number as usize].clone()
    }

    pub(super) fn add(&mut self) -> Add {
        let token = self.token_bytes.clone().map(|bytes| self.token(bytes));
        Add { counter: self.counter(), delta: self.rng.random_range(1..=5), token }
    }

    fn token(&mut self, bytes: RangeInclusive<usize>) -> String {
        let mut token = uuid::Uuid::now_v7().simple().to_string();
        if *bytes.start() < TOKEN_BYTES {
            // Its end: that is random.
            token.drain(..TOKEN_BYTES - self.rng.random_range(bytes));
        }
        token
    }

    pub(super) fn adds(&mut self, count: usize) -> Vec<Add> {
        (0..count).map(|_| self.add()).collect()
    }
}

/// By this machine's clock, which is also the store's.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn the_nth_counter_is_met_a_nth_as_often_as_the_first() {
        let mut source = Source::new(&Counters::zipf(1_000), 1).with_token_bytes(16..=32);
        let (mut times, mut tokens) = (HashMap::<String, u32>::new(), HashSet::new());
        for add in source.adds(200_000) {
            *times.entry(add.counter).or_default() += 1;
            let token = add.token.unwrap();
            assert!((16..=32).contains(&token.len()), "{token}");
            assert!(tokens.insert(token), "a token came twice");
        }
        let times = |n: usize| f64::from(times[&format!("counter-{n:08}")]);
        for n in [2, 10, 100] {
            let share = times(1) / times(n) / n as f64;
            assert!((0.7..1.4).contains(&share), "the first is met {share} × {n} times as often as the {n}th");
        }
    }
}
