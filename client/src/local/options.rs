//! The options of local counters, and the bounds of names.

use super::error::LocalError;
use super::steps::Steps;
use std::time::Duration;

/// The bounds of [`LocalOptions::slots_max`] and [`LocalOptions::stripes_max`].
const SLOTS_MAX: u32 = 1 << 24;
const STRIPES_MAX: u32 = 1_024;

/// How local counters work. Times are milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalOptions {
    /// Time between the beginnings of two pushes; default 1,000, at least 1.
    pub push_interval_ms: u64,
    /// Time between two pulls, longer or shorter by a random tenth, so that many instances do not pull at once; default 1,000, at
    /// least 1.
    pub pull_interval_ms: u64,
    /// Time between two writes of the mapped file to disk; default 1,000, at least 1. If the machine loses its power, adds of about
    /// this time are lost.
    pub sync_interval_ms: u64,
    /// A counter that is not read for this time is no longer pulled. A counter without handles and adds for this time leaves the
    /// folder. Default 600,000.
    pub idle_ms: u64,
    /// The sum of the absolute values that all other programs together add to one counter within a second; default 0: this is
    /// the only program that adds. The error bound relies on it.
    pub others_per_s_max: u64,
    /// How long an add of another program may take until the service has it: its push interval, the time of a push, and its
    /// `topic_delay_ms` if it pushes through a topic; default 2,000. The error bound relies on it.
    pub others_delay_ms: u64,
    /// How far the clock of this machine may be behind that of another program that adds; default 100. The error bound of EVENTUAL
    /// counters relies on it.
    pub clock_error_ms: u64,
    /// How many counters the folder may have at once, 1 to 16,777,216; default 65,536. Fixed when the folder is made.
    pub slots_max: u32,
    /// How many threads may have cells that no other thread adds to, 1 to 1,024; default 64. Further threads share one cell for each
    /// counter, which is slower. Fixed when the folder is made.
    pub stripes_max: u32,
    /// For tests: what is called at each step after which a crash may happen.
    #[doc(hidden)]
    pub steps: Steps,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions {
            push_interval_ms: 1_000,
            pull_interval_ms: 1_000,
            sync_interval_ms: 1_000,
            idle_ms: 600_000,
            others_per_s_max: 0,
            others_delay_ms: 2_000,
            clock_error_ms: 100,
            slots_max: 65_536,
            stripes_max: 64,
            steps: Steps::default(),
        }
    }
}

impl LocalOptions {
    pub(super) fn check(&self) -> Result<(), LocalError> {
        if !(1..=SLOTS_MAX).contains(&self.slots_max) {
            return Err(LocalError::invalid(format!("slots_max is {}, not 1 to {SLOTS_MAX}", self.slots_max)));
        }
        if !(1..=STRIPES_MAX).contains(&self.stripes_max) {
            return Err(LocalError::invalid(format!("stripes_max is {}, not 1 to {STRIPES_MAX}", self.stripes_max)));
        }
        let intervals = [self.push_interval_ms, self.pull_interval_ms, self.sync_interval_ms];
        if intervals.contains(&0) {
            return Err(LocalError::invalid("push_interval_ms, pull_interval_ms and sync_interval_ms are at least 1"));
        }
        Ok(())
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

/// Refuses names that the service would refuse: a push must not fail because of a name.
pub(super) fn check_names(namespace: &str, counter: &str) -> Result<(), LocalError> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if !(1..=64).contains(&namespace.len()) || !namespace.bytes().all(plain) {
        return Err(LocalError::invalid(format!("{namespace:?} is no namespace: 1 to 64 bytes of A-Z a-z 0-9 . _ -")));
    }
    if !(1..=128).contains(&counter.len()) || counter.chars().any(char::is_control) {
        return Err(LocalError::invalid(format!(
            "{counter:?} is no counter: 1 to 128 bytes without control characters"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_names_and_options_have_bounds() {
        assert!(check_names("ads-1.x_Y", "line item 7").is_ok());
        assert!(check_names(&"n".repeat(64), &"é".repeat(64)).is_ok());
        for (namespace, counter) in [("", "c"), ("a/b", "c"), ("n", ""), ("n", "a\nb")] {
            assert!(check_names(namespace, counter).is_err(), "{namespace:?} {counter:?}");
        }
        assert!(check_names(&"n".repeat(65), "c").is_err() && check_names("n", &"c".repeat(129)).is_err());
        let with = |change: fn(&mut LocalOptions)| {
            let mut options = LocalOptions::default();
            change(&mut options);
            options.check().is_ok()
        };
        assert!(with(|_| ()) && with(|options| options.slots_max = SLOTS_MAX));
        assert!(!with(|options| options.slots_max = 0) && !with(|options| options.slots_max = SLOTS_MAX + 1));
        assert!(!with(|options| options.stripes_max = 0) && !with(|options| options.stripes_max = STRIPES_MAX + 1));
        assert!(!with(|options| options.push_interval_ms = 0));
    }
}
