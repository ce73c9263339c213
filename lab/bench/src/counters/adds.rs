//! The adds: counters by Zipf's law or all alike, and tokens as callers make them.

use crate::zipf::Shares;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a token as tallystone-client makes it: a UUIDv7 in hexadecimal.
pub(super) const TOKEN_BYTES: usize = 32;

/// One add.
pub(super) struct Add {
    pub(super) counter: String,
    pub(super) delta: i64,
    /// `None` for best-effort counters.
    pub(super) token: Option<String>,
}

/// Counters, and how often each is used.
pub(super) struct CounterMix {
    names: Vec<String>,
    shares: Shares,
}

impl CounterMix {
    /// The n-th gets a share of 1/n (Zipf's law, s = 1).
    pub(super) fn zipf(count: usize) -> Arc<CounterMix> {
        CounterMix::with(count, Shares::zipf(count))
    }

    /// All get the same share.
    pub(super) fn uniform(count: usize) -> Arc<CounterMix> {
        CounterMix::with(count, Shares::uniform(count))
    }

    fn with(count: usize, shares: Shares) -> Arc<CounterMix> {
        Arc::new(CounterMix { names: (1..=count).map(|n| format!("counter-{n:08}")).collect(), shares })
    }

    /// Their names, the most frequent first.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn draw(&self, rng: &mut SmallRng) -> u32 {
        self.shares.draw(rng) as u32
    }
}

/// The adds of one caller.
pub(super) struct AddSource {
    counters: Arc<CounterMix>,
    rng: SmallRng,
    token_bytes: Option<RangeInclusive<usize>>,
    /// The next counters in reverse order, as far as they are drawn already.
    drawn: Vec<u32>,
}

impl AddSource {
    /// The seed decides everything except the tokens.
    pub(super) fn new(counters: &Arc<CounterMix>, seed: u64) -> AddSource {
        let rng = SmallRng::seed_from_u64(seed);
        let token_bytes = Some(TOKEN_BYTES..=TOKEN_BYTES);
        AddSource { counters: counters.clone(), rng, token_bytes, drawn: Vec::new() }
    }

    /// With tokens of these lengths, all equally frequent.
    pub(super) fn with_token_bytes(self, token_bytes: RangeInclusive<usize>) -> AddSource {
        AddSource { token_bytes: Some(token_bytes), ..self }
    }

    /// Without tokens, as best-effort counters take adds.
    pub(super) fn without_tokens(self) -> AddSource {
        AddSource { token_bytes: None, ..self }
    }

    /// Draws `count` counters now and not during the measurement: a draw takes about as long as an add.
    pub(super) fn drawn_ahead(mut self, count: usize) -> AddSource {
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
            // Only the end of a UUIDv7 is random.
            token.drain(..TOKEN_BYTES - self.rng.random_range(bytes));
        }
        token
    }

    pub(super) fn adds(&mut self, count: usize) -> Vec<Add> {
        (0..count).map(|_| self.add()).collect()
    }
}

/// Unix ms by the clock of this machine, which the store uses, too.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn the_nth_counter_is_used_a_nth_as_often_as_the_first() {
        let mut source = AddSource::new(&CounterMix::zipf(1_000), 1).with_token_bytes(16..=32);
        let (mut times, mut tokens) = (HashMap::<String, u32>::new(), HashSet::new());
        for add in source.adds(200_000) {
            *times.entry(add.counter).or_default() += 1;
            let token = add.token.unwrap();
            assert!((16..=32).contains(&token.len()), "{token}");
            assert!(tokens.insert(token), "a token is repeated");
        }
        let times = |n: usize| f64::from(times[&format!("counter-{n:08}")]);
        for n in [2, 10, 100] {
            let share = times(1) / times(n) / n as f64;
            assert!((0.7..1.4).contains(&share), "the first is used {share} × {n} times as often as the {n}th");
        }
    }
}
