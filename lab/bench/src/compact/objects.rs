//! The objects that are counted: ids that rise with gaps, as ids made from the time do, and values as skewed as those of a site's posts.

/// The counters of an object and their widths in bits, as in the goals.
pub(super) const FIELDS: [(&str, u32); 4] = [("l", 24), ("r", 24), ("m", 16), ("v", 24)];
/// Bytes of a record where a client packs it.
pub(super) const PACKED_BYTES: usize = 11;
/// The first id: sixteen digits.
const FIRST: u64 = 3_500_000_000_000_000;
/// The mean distance of two ids.
const GAP: u64 = 512;
/// How heavy the tails of the four counters are: the share of objects with a value above x is x to the power of minus this.
const TAILS: [f64; 4] = [0.5, 0.6, 0.7, 0.45];

/// Spreads a number over all bits.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random numbers of a seed: cheap, and the same on both sides.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(mix(seed))
    }

    /// A number below a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// The least id that the n-th object may have.
pub(super) fn floor(n: u64) -> u64 {
    FIRST + n * GAP
}

/// The id of the n-th object.
pub(super) fn id(n: u64) -> u64 {
    floor(n) + mix(n) % GAP
}

/// The values of the n-th object, none of them 0.
pub(super) fn values(n: u64) -> [u64; 4] {
    let mut draw = Draw::new(n ^ 0x5eed);
    TAILS.map(|tail| {
        let share = (draw.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
        share.powf(-1.0 / tail).min(100e6) as u64
    })
}

/// The values in the bits of the schema; a client that packs has no way to store more.
pub(super) fn packed(n: u64, out: &mut [u8; PACKED_BYTES]) {
    let (mut bits, mut at) = (0_u128, 0);
    for ((_, width), value) in FIELDS.iter().zip(values(n)) {
        bits |= u128::from(value.min((1 << width) - 1)) << at;
        at += width;
    }
    out.copy_from_slice(&bits.to_le_bytes()[..PACKED_BYTES]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_ids_rise_and_values_are_skewed() {
        assert!((1..10_000).all(|n| id(n - 1) < id(n)));
        let all: Vec<[u64; 4]> = (0..100_000).map(values).collect();
        let digits: usize = all.iter().flatten().map(|value| value.to_string().len()).sum();
        let mean = digits as f64 / 400_000.0;
        assert!((1.3..1.7).contains(&mean), "{mean} digits");
        let is_wide =
            |values: &&[u64; 4]| FIELDS.iter().zip(values.iter()).any(|((_, width), value)| value >> width > 0);
        let wide = all.iter().filter(is_wide).count();
        assert!((50..500).contains(&wide), "{wide} of 100,000 outgrow their bits");
        assert!(all.iter().flatten().all(|value| (1..=i32::MAX as u64).contains(value)));
    }
}
