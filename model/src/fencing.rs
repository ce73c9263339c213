//! Fencing tokens (Q11, Q17): a number of the sequence of a shard, with the number of the shard above it. So a token alone names the
//! shard that has its lease (docs/decisions/0180), and the tokens of a queue with one shard are the numbers themselves.

/// The bits of a token that are a number of the sequence: what a double represents exactly.
const SEQUENCE_BITS: u32 = 53;

/// The token with this number of the sequence of a shard; 0 stays 0: no lease.
pub fn token(shard: u16, sequence: u64) -> u64 {
    if sequence == 0 { 0 } else { u64::from(shard) << SEQUENCE_BITS | sequence }
}

/// The number of the shard that has given this token. A number above those of all shards: none has.
pub fn shard_of(token: u64) -> u64 {
    token >> SEQUENCE_BITS
}

/// The number of its shard's sequence in a token.
pub fn sequence_of(token: u64) -> u64 {
    token & ((1 << SEQUENCE_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_a_token_names_its_shard() {
        let sequence = 1_780_000_000_000_000;
        assert_eq!(token(0, sequence), sequence, "the tokens of a queue with one shard are numbers of its sequence");
        let last = token(63, sequence);
        assert_eq!((shard_of(last), sequence_of(last)), (63, sequence));
        assert!(last > token(62, sequence) && last < i64::MAX as u64, "history has signed numbers");
        assert_eq!(token(63, 0), 0);
    }
}
