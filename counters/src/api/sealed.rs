//! Tokens that carry what a server has computed for a later call: numbers with a checksum over them and the request. What
//! another request has computed must not pass as that of this one. The checksum finds mistakes; it keeps no secret.

use xxhash_rust::xxh3::xxh3_64;

/// A token of these numbers, joined by dots.
pub(super) fn seal(numbers: &str, request: &str) -> String {
    format!("{numbers}.{:016x}", checksum(numbers, request))
}

/// The numbers of a token of this request; `None`: it is none.
pub(super) fn unseal<'a>(token: &'a str, request: &str) -> Option<Vec<&'a str>> {
    let (numbers, sum) = token.rsplit_once('.')?;
    let is_right = sum == format!("{:016x}", checksum(numbers, request));
    is_right.then(|| numbers.split('.').collect())
}

fn checksum(numbers: &str, request: &str) -> u64 {
    xxh3_64(format!("{numbers} {request}").as_bytes())
}
