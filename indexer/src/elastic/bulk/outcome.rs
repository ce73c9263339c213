//! The outcome of a bulk request, write by write.

use super::batch::{BulkBatch, BulkWrite, RefusedWrite};
use crate::elastic::reply::{HttpReply, describe, is_transient, server_error};
use crate::store::HistoryError;
use serde::Deserialize;

/// The outcome of a batch. All writes that it does not name are done.
pub(super) struct BatchOutcome {
    pub(super) refused: Vec<RefusedWrite>,
    /// How many writes are done.
    pub(super) done: usize,
    /// Writes that an overloaded server refused for now, and its reason.
    pub(super) overloaded: Option<(BulkBatch, String)>,
}

#[derive(Deserialize)]
struct BulkResponse {
    errors: bool,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Item {
    Create(ItemOutcome),
    Index(ItemOutcome),
    Delete(ItemOutcome),
}

#[derive(Deserialize)]
struct ItemOutcome {
    status: u16,
    #[serde(default)]
    error: ItemError,
}

#[derive(Default, Deserialize)]
struct ItemError {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    reason: String,
}

/// Reads the outcome of each write. Fails if the request failed, or a write for a reason that is not its own.
pub(super) fn outcome(reply: &HttpReply, batch: &BulkBatch) -> Result<BatchOutcome, HistoryError> {
    let response: BulkResponse = reply.read()?;
    let mut outcome = BatchOutcome { refused: Vec::new(), done: batch.writes.len(), overloaded: None };
    if response.items.len() != batch.writes.len() {
        let why = format!("the response to {} writes has {} items", batch.writes.len(), response.items.len());
        return Err(HistoryError::Failed(why));
    }
    if !response.errors {
        return Ok(outcome);
    }
    let mut overloaded = Vec::new();
    for (item, write) in response.items.iter().zip(&batch.writes) {
        let item = match item {
            Item::Create(item) | Item::Index(item) => item,
            // The document is gone already.
            Item::Delete(item) if item.status == 404 => continue,
            Item::Delete(item) => item,
        };
        let ItemOutcome { status, error: ItemError { kind, reason } } = item;
        match *status {
            // 409: the document exists already, or a newer version does.
            200..300 | 409 => {}
            // The server's kinds of errors of a document are not listed anywhere; those of an index are few.
            400 if !is_transient(*status, kind, reason) => {
                outcome.refused.push(RefusedWrite { number: write.number, why: describe(*status, kind, reason) });
            }
            // The queue of a thread pool is full, which lasts a moment. Other transient errors last longer.
            429 if kind != "cluster_block_exception" => {
                overloaded.push((write.clone(), describe(*status, kind, reason)))
            }
            _ => return Err(server_error(*status, kind, reason)),
        }
    }
    outcome.done -= outcome.refused.len() + overloaded.len();
    if let Some((_, why)) = overloaded.first() {
        let why = why.clone();
        let writes: Vec<BulkWrite> = overloaded.into_iter().map(|(write, _)| write).collect();
        outcome.overloaded = Some((batch.only(&writes), why));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::super::builder::tests::{batch, numbers};
    use super::*;
    use serde_json::{Value, json};

    fn reply(items: Value) -> HttpReply {
        HttpReply { status: 200, body: json!({ "errors": true, "items": items }).to_string().into() }
    }

    fn item(status: u16, kind: &str) -> Value {
        json!({ "index": { "status": status, "error": { "type": kind, "reason": "r" } } })
    }

    #[test]
    fn each_write_has_its_own_outcome() {
        let items = json!([
            { "index": { "status": 201 } },
            item(409, "version_conflict_engine_exception"),
            item(400, "document_parsing_exception"),
            item(429, "es_rejected_execution_exception"),
        ]);
        let outcome = super::outcome(&reply(items), &batch(4)).unwrap();
        assert_eq!(outcome.refused, [RefusedWrite { number: 2, why: "400 document_parsing_exception: r".into() }]);
        assert_eq!(outcome.done, 2);
        assert_eq!(numbers(&outcome.overloaded.unwrap().0), [3]);
    }

    #[test]
    fn a_bad_request_of_an_unknown_kind_refuses_its_document() {
        let items = json!([{ "index": { "status": 201 } }, item(400, "exception_of_a_later_version")]);
        let outcome = super::outcome(&reply(items), &batch(2)).unwrap();
        assert_eq!((outcome.refused.len(), outcome.done), (1, 1));
    }

    #[test]
    fn errors_of_the_server_refuse_no_document() {
        for (status, kind) in [
            (403, "cluster_block_exception"),
            (429, "cluster_block_exception"),
            (503, "unavailable_shards_exception"),
            (400, "validation_exception"),
            (400, "index_closed_exception"),
            (404, "index_not_found_exception"),
        ] {
            let outcome = super::outcome(&reply(json!([item(status, kind)])), &batch(1)).map(|outcome| outcome.refused);
            assert!(matches!(outcome, Err(HistoryError::Unavailable(_))), "{status} {kind}: {outcome:?}");
        }
        let outcome =
            super::outcome(&reply(json!([item(403, "security_exception")])), &batch(1)).map(|outcome| outcome.refused);
        assert!(matches!(outcome, Err(HistoryError::Failed(_))), "{outcome:?}");
        let outcome = super::outcome(&reply(json!([])), &batch(1)).map(|outcome| outcome.refused);
        assert!(matches!(outcome, Err(HistoryError::Failed(_))), "{outcome:?}");
    }
}
