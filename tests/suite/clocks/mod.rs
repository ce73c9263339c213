//! A Redis, and a server, whose clock is wrong: 600 s ahead and 600 s behind, for a moment and for longer (X6).
//!
//! What lives here: the queue and the counters under such a Redis, and such servers. What may not: what a clock that a test passes to the
//! scripts can show (`conformance`, `counters`).

mod counters;
mod metrics;
mod queue;
mod reset;
mod servers;

use std::time::Duration;
use tallystone_tests::ClockShift;
use tokio::time::{Instant, sleep};

/// Both directions, in ms.
const WRONG: [i64; 2] = [600_000, -600_000];
const MOMENT: Duration = Duration::from_millis(500);
/// As long as a clock stays wrong here that stays wrong: nothing recovers while it does.
const FOR_GOOD: Duration = Duration::from_secs(4);
/// Within which everything works again.
const RECOVERY: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// Sets the clock wrong for so long, and calls `refused` again and again meanwhile. Returns when the clock was right again.
async fn wrong_for(shift: &ClockShift, ahead_ms: i64, time: Duration, refused: impl AsyncFn()) -> Instant {
    shift.set_ms(ahead_ms);
    let wrong_at = Instant::now();
    while wrong_at.elapsed() < time {
        refused().await;
        sleep(POLL).await;
    }
    shift.set_ms(0);
    Instant::now()
}
