//! Which shard has what of a counter.

use super::config::{NamespaceConfig, SHARDS};
use crate::names::{CounterName, Token};
use xxhash_rust::xxh3::xxh3_128;

/// The shards of a counter and of its events, all from the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    hash: u128,
}

impl Placement {
    pub(crate) fn of(counter: &CounterName) -> Placement {
        Placement { hash: xxh3_128(counter.as_str().as_bytes()) }
    }

    /// The home shard: it has the counter's checkpoint.
    pub(crate) fn home(self) -> u16 {
        (self.hash % u128::from(SHARDS)) as u16
    }

    /// Its hash in a record: two counters have the same one once in 2^96 pairs.
    pub(crate) fn id(self) -> [u8; 12] {
        let mut id = [0; 12];
        id.copy_from_slice(&self.hash.to_be_bytes()[..12]);
        id
    }

    /// The shards that can have its events, each once.
    pub(crate) fn shards(self, config: &NamespaceConfig) -> impl Iterator<Item = u16> {
        (0..config.buckets_per_id).map(move |bucket| (self.home() + bucket) % SHARDS)
    }

    /// The shard of one event, and the hash that selects the slot of its record.
    pub(crate) fn of_event(self, token: &Token, config: &NamespaceConfig) -> (u16, u32) {
        let hash = xxh3_128(token.as_str().as_bytes()) ^ self.hash.rotate_left(32);
        let bucket = ((hash >> 64) % u128::from(config.buckets_per_id)) as u16;
        ((self.home() + bucket) % SHARDS, hash as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_the_events_of_one_counter_are_spread_over_as_many_shards_as_it_has_buckets() {
        let counter = CounterName::parse("c").unwrap();
        for buckets_per_id in [1, 3, 8] {
            let config = NamespaceConfig { buckets_per_id, ..Default::default() };
            let placement = Placement::of(&counter);
            let all: std::collections::BTreeSet<u16> = placement.shards(&config).collect();
            let tokens = (0..200).map(|n| Token::parse(n.to_string()).unwrap());
            let met: std::collections::BTreeSet<u16> =
                tokens.map(|token| placement.of_event(&token, &config).0).collect();
            assert_eq!(all.len(), usize::from(buckets_per_id));
            assert_eq!(met, all);
        }
    }
}
