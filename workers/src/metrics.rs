//! What the workers tell Prometheus, through whatever recorder the program has installed.

use metrics::{counter, gauge, histogram};
use std::time::Duration;
use tallystone_counters::{Refusal, RolledUp};

/// What became of a rollup.
pub(crate) fn rolled_up(result: &Result<RolledUp, Refusal>, now_ms: u64) {
    let outcome = match result {
        Ok(RolledUp::Committed { checkpoint, .. }) => {
            // How far the count is behind what was last added.
            if checkpoint.last_write_ms > 0 && checkpoint.last_write_ms < checkpoint.exact_to_ms {
                let lag_ms = now_ms.saturating_sub(checkpoint.last_write_ms);
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

/// A batch of so many counters took so long, and the next one waits.
pub(crate) fn batch(counters: usize, took: Duration, pause: Duration) {
    histogram!("tallystone_rollup_batch_counters").record(counters as f64);
    histogram!("tallystone_rollup_batch_seconds").record(took);
    gauge!("tallystone_rollup_pause_seconds").set(pause);
}
