//! The view counter with its log in a real Kafka (V2, V3, V5).
//!
//! What lives here: borders of windows (`borders`), processes and brokers that are killed and stopped (`crashes`), a
//! broker that hangs (`hanging`), processes that end at each step of a transaction (`steps`, in a `life`) or of accepting views (`ingest`), a topic that
//! is created again (`recreated`), deltas that have waited for long (`late`), and counters that are deleted
//! (`deleted`), and how soon another process takes over (`takeover`), all on a `stage`. What may not: what HTTP answers, which is the same for every log.

mod borders;
mod crashes;
mod deleted;
mod hanging;
mod ingest;
mod late;
mod life;
mod recreated;
mod stage;
mod steps;
mod takeover;

pub(crate) use stage::Stage;

use crate::ingest::topics::Written;
use crate::views::entry;

/// A record with one view.
fn record(partition: i32, at_ms: i64, video: &str, user: &str) -> Written {
    record_in("default", partition, at_ms, video, user)
}

/// A record with one view of another namespace.
fn record_in(namespace: &str, partition: i32, at_ms: i64, video: &str, user: &str) -> Written {
    // The lengths are below 128, so the bytes are text.
    let value = String::from_utf8(entry(namespace, video, user)).expect("text");
    Written { partition, at_ms, key: video.to_owned(), value }
}
