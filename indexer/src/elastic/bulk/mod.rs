//! Many writes: gathered into requests of bounded size, sent a few at a time, judged one by one (`answer`).

mod answer;

use super::link::Link;
use crate::store::HistoryError;
use answer::judge;
use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

/// A request is sent once it has so many bytes, or so many writes.
const BYTES: usize = 6 * 1024 * 1024;
const WRITES: usize = 8_192;
/// Requests on their way at once.
const AT_ONCE: usize = 3;
/// Writes refused for overload are sent again so often, later each time; then the caller has to wait.
const AGAIN: usize = 4;
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Of the answer, what one needs to know: a write that went well is its status.
const ANSWER: (&str, &str) = ("filter_path", "errors,items.*.status,items.*.error.type,items.*.error.reason");

/// What to do with a document.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action<'a> {
    /// Write it unless it is there.
    Create(Target<'a>),
    /// Write it unless a newer version is there.
    Index(Target<'a>),
    /// Remove it unless a newer version is there.
    Delete(Target<'a>),
}

/// Which document.
#[derive(Serialize)]
pub(super) struct Target<'a> {
    #[serde(rename = "_index")]
    pub(super) index: &'a str,
    #[serde(rename = "_id")]
    pub(super) id: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<External>,
}

/// A version that is ours, not the server's.
#[derive(Serialize)]
pub(super) struct External {
    version: u64,
    version_type: &'static str,
}

impl External {
    pub(super) fn version(version: u64) -> Option<External> {
        Some(External { version, version_type: "external_gte" })
    }
}

/// Writes of one kind after the other, each with a number that its caller gave it.
#[derive(Default)]
pub(super) struct Bulk {
    full: Vec<Batch>,
    lines: Vec<u8>,
    writes: Vec<Write>,
}

/// One request.
struct Batch {
    lines: Bytes,
    writes: Vec<Write>,
}

#[derive(Clone)]
struct Write {
    number: usize,
    lines: Range<usize>,
}

/// A write that can never be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) number: usize,
    pub(super) why: String,
}

impl Bulk {
    /// One more write; `document` is for all but deletions.
    pub(super) fn push(&mut self, number: usize, action: &Action<'_>, document: Option<&impl Serialize>) {
        let begin = self.lines.len();
        push_line(&mut self.lines, action);
        if let Some(document) = document {
            push_line(&mut self.lines, document);
        }
        self.writes.push(Write { number, lines: begin..self.lines.len() });
        if self.lines.len() >= BYTES || self.writes.len() >= WRITES {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.writes.is_empty() {
            let lines = std::mem::take(&mut self.lines).into();
            self.full.push(Batch { lines, writes: std::mem::take(&mut self.writes) });
        }
    }

    /// The bodies of all requests.
    pub(super) fn requests(mut self) -> Vec<Bytes> {
        self.close();
        self.full.into_iter().map(|batch| batch.lines).collect()
    }

    /// Sends everything. Answers when all is durable but what can never be written.
    pub(super) async fn send(mut self, link: &Link, query: &[(&str, &str)]) -> Result<Vec<Refused>, HistoryError> {
        self.close();
        let query: Vec<(&str, &str)> = query.iter().copied().chain([ANSWER]).collect();
        let sent = stream::iter(self.full.into_iter().map(|batch| deliver(link, &query, batch)));
        let refused: Vec<Vec<Refused>> = sent.buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(refused.into_iter().flatten().collect())
    }
}

fn push_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("these types have string keys, and a vector takes all bytes");
    lines.push(b'\n');
}

/// Sends a batch until each of its writes is done or refused.
async fn deliver(link: &Link, query: &[(&str, &str)], batch: Batch) -> Result<Vec<Refused>, HistoryError> {
    let mut refused = Vec::new();
    let mut pending = vec![batch];
    let mut pauses = ExponentialBuilder::new().with_min_delay(AGAIN_AFTER).with_max_times(AGAIN).with_jitter().build();
    while let Some(batch) = pending.pop() {
        let reply = link.send_lines(query, batch.lines.clone()).await?;
        if reply.status == 413 {
            match batch.split() {
                Ok(halves) => pending.extend(halves),
                Err(number) => refused.push(Refused { number, why: "the server takes no request so large".to_owned() }),
            }
            continue;
        }
        let judged = judge(&reply, &batch)?;
        refused.extend(judged.refused);
        if let Some((overloaded, why)) = judged.overloaded {
            let Some(pause) = pauses.next() else { return Err(HistoryError::Unavailable(why)) };
            tokio::time::sleep(pause).await;
            pending.push(overloaded);
        }
    }
    Ok(refused)
}

impl Batch {
    /// Two batches of half the writes each; `Err`: it has only this one.
    fn split(self) -> Result<[Batch; 2], usize> {
        let (left, right) = self.writes.split_at(self.writes.len() / 2);
        match (left, right) {
            ([], [only]) => Err(only.number),
            _ => Ok([self.only(left), self.only(right)]),
        }
    }

    fn only(&self, writes: &[Write]) -> Batch {
        let mut lines = BytesMut::new();
        let writes = writes.iter().map(|write| {
            let begin = lines.len();
            lines.extend_from_slice(&self.lines[write.lines.clone()]);
            Write { number: write.number, lines: begin..lines.len() }
        });
        let writes = writes.collect();
        Batch { lines: lines.freeze(), writes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bulk(count: usize) -> Bulk {
        let mut bulk = Bulk::default();
        for number in 0..count {
            let target = Target { index: "i", id: &number.to_string(), version: External::version(number as u64) };
            bulk.push(number, &Action::Index(target), Some(&json!({ "n": number })));
        }
        bulk
    }

    pub(super) fn batch(count: usize) -> Batch {
        let mut bulk = bulk(count);
        bulk.close();
        bulk.full.remove(0)
    }

    pub(super) fn numbers(batch: &Batch) -> Vec<usize> {
        batch.writes.iter().map(|write| write.number).collect()
    }

    #[test]
    fn lines_as_the_server_reads_them() {
        let lines = String::from_utf8(batch(1).lines.to_vec()).unwrap();
        let action = r#"{"index":{"_index":"i","_id":"0","version":0,"version_type":"external_gte"}}"#;
        assert_eq!(lines, format!("{action}\n{{\"n\":0}}\n"));
        let target = Target { index: "i", id: "x", version: None };
        let mut bulk = Bulk::default();
        bulk.push(0, &Action::Delete(target), None::<&()>);
        assert_eq!(bulk.lines, b"{\"delete\":{\"_index\":\"i\",\"_id\":\"x\"}}\n");
    }

    #[test]
    fn requests_are_bounded_by_writes_and_bytes() {
        let mut bulk = bulk(2 * WRITES + 1);
        bulk.close();
        assert_eq!(bulk.full.iter().map(|batch| batch.writes.len()).collect::<Vec<_>>(), [WRITES, WRITES, 1]);
        let large = "x".repeat(BYTES / 2);
        let mut bulk = Bulk::default();
        for number in 0..3 {
            let target = Target { index: "i", id: "x", version: None };
            bulk.push(number, &Action::Create(target), Some(&large));
        }
        bulk.close();
        assert_eq!(bulk.full.iter().map(numbers).collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn what_is_too_large_is_split_down_to_one_write() {
        let [left, right] = batch(3).split().unwrap_or_else(|_| panic!("it has three"));
        assert_eq!((numbers(&left), numbers(&right)), (vec![0], vec![1, 2]));
        assert!(right.lines.ends_with(b"{\"n\":2}\n") && right.lines.starts_with(b"{\"index\""));
        assert_eq!(left.split().map(|_| ()), Err(0));
    }
}
