//! The view counter on a real Redis and a real counters server (V1 to V6).
//!
//! What lives here: what callers see over HTTP (`http`, `hostile`), borders of windows in the log (`borders`, with an `oracle`), processes that are
//! killed, stopped and away (`crashes`, `away`, `availability` on two `sites`; on `machines`, with `load`; `steps`, in a `life`; `ingest`), who
//! owns a partition (`takeover`), clocks that are wrong (`clocks`), which delta counts (`tokens`), counters that are
//! deleted (`deleted`), the bounds of pairs (`memory`) and of deltas that wait for slow counters (`slow`), how far counts are behind
//! (`lag`), a log that was emptied (`emptied`) or is opened with another configuration (`changed`) and `tallystone dev` (`dev`). What may
//! not: the log in Kafka (`kafka::views`, so that its long tests do not come last), and the windows by themselves, which the crate tests
//! against its oracle.

mod availability;
mod away;
pub(crate) mod borders;
mod changed;
mod clocks;
mod crashes;
mod deleted;
mod dev;
mod emptied;
mod hostile;
mod http;
pub(crate) mod ingest;
mod lag;
mod life;
pub(crate) mod load;
mod machines;
mod memory;
pub(crate) mod oracle;
mod sites;
mod slow;
pub(crate) mod stage;
mod steps;
mod takeover;
mod tokens;

use redis::aio::ConnectionLike;
use serde_json::{Value, json};

/// A view as the seed posts it.
pub(crate) fn view(video: &str, user: &str) -> Value {
    json!({"videoId": video, "userId": user, "timestamp": "2026-11-25T08:00:00Z"})
}

/// An entry of the log with one view.
pub(crate) fn entry(namespace: &str, video: &str, user: &str) -> Vec<u8> {
    let lengths = [namespace, video, user].map(|text| text.len() as u8);
    [&[0; 8][..], &lengths, namespace.as_bytes(), video.as_bytes(), user.as_bytes()].concat()
}

/// The records of deltas that wait for the counters in the first partitions: their ids, and what they have.
async fn waiting_records(redis: &mut impl ConnectionLike, partitions: u16) -> Vec<(String, Vec<u8>)> {
    let mut records = Vec::new();
    for partition in 0..partitions {
        let mut command = redis::cmd("XRANGE");
        command.arg(format!("tc:views:{{{partition}}}:deltas")).arg("-").arg("+");
        let entries: Vec<(String, Vec<Vec<u8>>)> = command.query_async(redis).await.expect("entries");
        records.extend(entries.into_iter().filter_map(|(id, mut fields)| Some((id, fields.pop()?))));
    }
    records
}

/// The deltas in a record of them that waits for the counters: one for each counter.
fn deltas(record: &[u8]) -> Vec<u32> {
    let (mut rest, mut deltas) = (record.strip_prefix(&[0, 1, 0xFF]).expect("a mark"), Vec::new());
    while !rest.is_empty() {
        // The lengths of a namespace and of a counter are before them.
        for _ in 0..2 {
            rest = &rest[1 + usize::from(rest[0])..];
        }
        let (delta, behind) = rest.split_first_chunk().expect("four bytes");
        deltas.push(u32::from_be_bytes(*delta));
        rest = behind;
    }
    deltas
}
