//! Compares the answers of the two sides.

use std::fmt::Debug;

/// Where two sides differ, in words.
pub(super) type Outcome = Result<(), String>;

/// Equal, or what differs.
pub(super) fn same<T: PartialEq + Debug>(what: &str, oracle: &T, redis: &T) -> Outcome {
    if oracle == redis {
        return Ok(());
    }
    Err(format!("{what} differs\n    oracle {oracle:?}\n    redis  {redis:?}"))
}
