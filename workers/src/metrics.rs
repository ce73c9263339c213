//! The workers' metrics, through the recorder that the program has installed.

use metrics::{counter, gauge, histogram};
use std::time::Duration;
use tallystone_counters::{Checkpoint, Refusal, RolledUp};

/// Counts a rollup by its outcome, and its lag.
pub(crate) fn rolled_up(result: &Result<RolledUp, Refusal>, now_ms: u64) {
    let outcome = match result {
        Ok(RolledUp::Committed { from_ms, checkpoint }) => {
            if let Some(counted_to_ms) = counted_to_ms(*from_ms, checkpoint) {
                let lag_ms = now_ms.saturating_sub(counted_to_ms);
                histogram!("tallystone_rollup_lag_seconds").record(Duration::from_millis(lag_ms));
            }
            "committed"
        }
        Ok(RolledUp::Nothing) => "nothing",
        Ok(RolledUp::Lost) => "lost",
        Err(_) => "failed",
    };
    counter!("tallystone_rollups_total", "outcome" => outcome).increment(1);
}

/// The time of the latest event that a rollup has counted, as far as it is known (Unix ms); `None`: it had none to count,
/// and only brought the counter's `exact_to_ms` forward.
fn counted_to_ms(from_ms: u64, checkpoint: &Checkpoint) -> Option<u64> {
    let last_write_ms = checkpoint.last_write_ms;
    (last_write_ms > 0 && last_write_ms >= from_ms).then(|| last_write_ms.min(checkpoint.exact_to_ms))
}

/// A batch: its counters, how long it took, and the pause before the next one.
pub(crate) fn batch(counters: usize, took: Duration, pause: Duration) {
    histogram!("tallystone_rollup_batch_counters").record(counters as f64);
    histogram!("tallystone_rollup_batch_seconds").record(took);
    gauge!("tallystone_rollup_pause_seconds").set(pause);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_that_had_nothing_to_count_is_not_late() {
        let checkpoint = |last_write_ms| Checkpoint { exact_to_ms: 5_000, last_write_ms, ..Checkpoint::default() };
        for (last_write_ms, counted_to) in
            [(0, None), (3_999, None), (4_000, Some(4_000)), (4_999, Some(4_999)), (9_000, Some(5_000))]
        {
            assert_eq!(counted_to_ms(4_000, &checkpoint(last_write_ms)), counted_to, "{last_write_ms}");
        }
    }
}
