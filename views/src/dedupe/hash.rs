//! The keyed hash of a pair of video and user.

use ring::hmac;

/// Bytes of a pair.
pub const PAIR_BYTES: usize = 12;
/// Bytes of the secret of a [`PairHasher`].
pub const SECRET_BYTES: usize = 32;

/// A pair of video and user, as a keyed hash of 96 bits. Those after the first byte are never all zero.
///
/// Two pairs have the same hash with a probability of 2⁻⁹⁶, so a new pair among `n` is taken for one of them with `n / 2⁹⁶`.
pub type Pair = [u8; PAIR_BYTES];

/// Hashes pairs. Without the secret, no user can find a pair that has the hash of another one.
pub struct PairHasher(hmac::Key);

impl PairHasher {
    /// All processes of one log use the same secret.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> PairHasher {
        PairHasher(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The hash of a pair. Ids have no control characters, so a zero byte separates them.
    pub fn pair(&self, video: &str, user: &str) -> Pair {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(video.as_bytes());
        context.update(&[0]);
        context.update(user.as_bytes());
        let mut pair = [0; PAIR_BYTES];
        pair.copy_from_slice(&context.sign().as_ref()[..PAIR_BYTES]);
        if pair[1..] == [0; PAIR_BYTES - 1] {
            // An empty slot of a table is zero, and a slot has no first byte.
            pair[PAIR_BYTES - 1] = 1;
        }
        pair
    }
}
