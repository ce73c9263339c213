//! Builds bulk requests and sends them until each write is done or refused.

use super::action::Action;
use super::batch::{BulkBatch, BulkWrite, RefusedWrite};
use super::outcome::outcome;
use crate::elastic::client::ElasticClient;
use crate::elastic::reply::HttpReply;
use crate::store::HistoryError;
use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use std::time::Duration;

/// A request is closed once it has this many bytes, or this many writes.
const REQUEST_BYTES: usize = 6 * 1024 * 1024;
const REQUEST_WRITES: usize = 8_192;
/// Requests in flight.
const REQUESTS_AT_ONCE: usize = 3;
/// How often writes that an overloaded server refused are sent again. After that the caller must wait.
const RETRIES_MAX: usize = 4;
/// A server that refuses more writes than this and accepts none does not refuse them for what is in them.
const REFUSED_ALONE_MAX: usize = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The parts of the response that are read: of a write that succeeded, its status.
const RESPONSE_FILTER: (&str, &str) = ("filter_path", "errors,items.*.status,items.*.error.type,items.*.error.reason");
/// Whatever pipeline an index names: one names a pipeline that does not exist, to keep earlier programs from writing to it.
const NO_PIPELINE: (&str, &str) = ("pipeline", "_none");

/// Writes in order, each with a number that its caller gave it.
#[derive(Default)]
pub(in crate::elastic) struct Bulk {
    closed: Vec<BulkBatch>,
    /// The open request.
    lines: Vec<u8>,
    writes: Vec<BulkWrite>,
}

impl Bulk {
    /// Adds a write; `document` is absent for deletions only.
    pub(in crate::elastic) fn push(&mut self, number: usize, action: &Action<'_>, document: Option<&impl Serialize>) {
        let begin = self.lines.len();
        push_line(&mut self.lines, action);
        if let Some(document) = document {
            push_line(&mut self.lines, document);
        }
        self.writes.push(BulkWrite { number, lines: begin..self.lines.len() });
        if self.lines.len() >= REQUEST_BYTES || self.writes.len() >= REQUEST_WRITES {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.writes.is_empty() {
            let lines = std::mem::take(&mut self.lines).into();
            self.closed.push(BulkBatch { lines, writes: std::mem::take(&mut self.writes) });
        }
    }

    /// The bodies of all requests.
    pub(in crate::elastic) fn requests(mut self) -> Vec<Bytes> {
        self.close();
        self.closed.into_iter().map(|batch| batch.lines).collect()
    }

    /// Sends all requests. Returns once every write is durable, except those returned, which can never be.
    pub(in crate::elastic) async fn send(
        mut self,
        client: &ElasticClient,
        query: &[(&str, &str)],
    ) -> Result<Vec<RefusedWrite>, HistoryError> {
        self.close();
        let query: Vec<(&str, &str)> = query.iter().copied().chain([RESPONSE_FILTER, NO_PIPELINE]).collect();
        let sent = stream::iter(self.closed.into_iter().map(|batch| send_batch(client, &query, batch)));
        let refused: Vec<Vec<RefusedWrite>> = sent.buffer_unordered(REQUESTS_AT_ONCE).try_collect().await?;
        Ok(refused.into_iter().flatten().collect())
    }
}

fn push_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("these types have string keys, and a vector takes all bytes");
    lines.push(b'\n');
}

/// Sends a batch until each of its writes is done or refused. A request that the server refuses as a whole is split until
/// the write that it refuses is alone.
async fn send_batch(
    client: &ElasticClient,
    query: &[(&str, &str)],
    batch: BulkBatch,
) -> Result<Vec<RefusedWrite>, HistoryError> {
    let mut refused = Vec::new();
    let mut done = 0;
    let mut pending = vec![batch];
    let mut pauses =
        ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_times(RETRIES_MAX).with_jitter().build();
    while let Some(batch) = pending.pop() {
        let reply = client.send_bulk(query, batch.lines.clone()).await?;
        if let Some(why) = refuses_request(&reply)? {
            match batch.split() {
                Ok(halves) => pending.extend(halves),
                Err(number) => refused.push(RefusedWrite { number, why }),
            }
            at_fault(&refused, done)?;
            continue;
        }
        let outcome = outcome(&reply, &batch)?;
        done += outcome.done;
        refused.extend(outcome.refused);
        at_fault(&refused, done)?;
        if let Some((overloaded, why)) = outcome.overloaded {
            let Some(pause) = pauses.next() else { return Err(HistoryError::Unavailable(why)) };
            tokio::time::sleep(pause).await;
            pending.push(overloaded);
        }
    }
    Ok(refused)
}

/// Why the server refuses a request because of one of its writes; `None`: it does not.
fn refuses_request(reply: &HttpReply) -> Result<Option<String>, HistoryError> {
    match (reply.status, reply.done()) {
        (413, _) => Ok(Some("larger than the server's limit of a request".to_owned())),
        (400, Err(HistoryError::Failed(why))) => Ok(Some(why)),
        (400, Err(transient)) => Err(transient),
        _ => Ok(None),
    }
}

/// Fails if the documents cannot be at fault: the server has refused many and accepted none.
fn at_fault(refused: &[RefusedWrite], done: usize) -> Result<(), HistoryError> {
    match refused.last() {
        Some(last) if done == 0 && refused.len() > REFUSED_ALONE_MAX => {
            Err(HistoryError::Failed(format!("every document is refused: {}", last.why)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::action::{ExternalVersion, Target};
    use super::*;
    use serde_json::json;

    fn bulk(count: usize) -> Bulk {
        let mut bulk = Bulk::default();
        for number in 0..count {
            let target = Target { index: "i", id: &number.to_string(), version: ExternalVersion::of(number as u64) };
            bulk.push(number, &Action::Index(target), Some(&json!({ "n": number })));
        }
        bulk
    }

    pub(in crate::elastic::bulk) fn batch(count: usize) -> BulkBatch {
        let mut bulk = bulk(count);
        bulk.close();
        bulk.closed.remove(0)
    }

    pub(in crate::elastic::bulk) fn numbers(batch: &BulkBatch) -> Vec<usize> {
        batch.writes.iter().map(|write| write.number).collect()
    }

    #[test]
    fn lines_have_the_format_of_the_server() {
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
        let mut bulk = bulk(2 * REQUEST_WRITES + 1);
        bulk.close();
        assert_eq!(
            bulk.closed.iter().map(|batch| batch.writes.len()).collect::<Vec<_>>(),
            [REQUEST_WRITES, REQUEST_WRITES, 1]
        );
        let large = "x".repeat(REQUEST_BYTES / 2);
        let mut bulk = Bulk::default();
        for number in 0..3 {
            let target = Target { index: "i", id: "x", version: None };
            bulk.push(number, &Action::Create(target), Some(&large));
        }
        bulk.close();
        assert_eq!(bulk.closed.iter().map(numbers).collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_request_that_is_too_large_is_split_down_to_one_write() {
        let [left, right] = batch(3).split().unwrap_or_else(|_| panic!("three writes can be split"));
        assert_eq!((numbers(&left), numbers(&right)), (vec![0], vec![1, 2]));
        assert!(right.lines.ends_with(b"{\"n\":2}\n") && right.lines.starts_with(b"{\"index\""));
        assert_eq!(left.split().map(|_| ()), Err(0));
    }
}
