//! The counters as a service, from the wire to the count: servers of counters, servers of the queue that drives them, and
//! the workers that roll up (N1 to N11).
//!
//! What lives here: tests of processes that are killed and stopped (`rounds`, `paused`, `crowd`, `cluster`, on `machines`), of a
//! store or a server that hangs (`overload`, `hedged`), tests of the wire, of metrics, of namespaces, of deletions
//! (`deleted`), of conditional adds (`bounded`), of reads that wait for rollups (`fresh`), of `sums` by period, of `labels`, of
//! `recounts`, of passed thresholds (`crossings`), of the highest counts (`top`), of what browsers send (`http_browser`), of
//! the description of the calls (`http_description`), of very many queues
//! (`many_queues`) and of jobs without workers (`unserved`), on a `house` within this process, how the workers' records
//! are judged (`judge`), and of the stores after hours without rollups (`unsettled`). What may not: what else can be shown at the stores
//! alone (`counters`).

mod api;
mod bounded;
mod cluster;
mod crossings;
mod crowd;
mod deleted;
mod fresh;
mod hedged;
pub(crate) mod house;
mod http;
mod http_browser;
mod http_description;
mod judge;
mod labels;
mod load;
mod machines;
mod many_queues;
mod metrics;
mod namespaces;
pub(crate) mod overload;
mod parameters;
mod paused;
mod recounts;
mod retention;
mod rounds;
mod service;
mod sums;
mod top;
mod unserved;
mod unsettled;

use crate::system::program::SOON;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_tests::lasting_port;
use tokio::time::{Instant, sleep};

/// How often a test checks for something that must come.
const POLL: Duration = Duration::from_millis(10);

/// An address for metrics that stays free.
fn lasting_address() -> String {
    format!("127.0.0.1:{}", lasting_port())
}

/// Waits until `count` is `expected`, which it reads once in this time. How long that takes depends on the machine, so only a
/// standstill fails.
async fn until_all(expected: usize, every: Duration, mut count: impl AsyncFnMut() -> usize) {
    let (mut give_up_at, mut most) = (Instant::now() + SOON, 0);
    loop {
        let found = count().await;
        if found == expected {
            return;
        }
        if found > most {
            (give_up_at, most) = (Instant::now() + SOON, found);
        }
        assert!(Instant::now() < give_up_at, "no more than {found} of {expected}");
        sleep(every).await;
    }
}

/// Unix ms by this machine's clock, which is also the store's.
fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
    u64::try_from(since_1970.as_millis()).expect("not yet")
}
