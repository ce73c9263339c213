//! What a request came to, write by write.

use super::{Batch, Refused, Write};
use crate::elastic::link::{Reply, refusal, words};
use crate::store::HistoryError;
use serde::Deserialize;

/// What a batch came to.
pub(super) struct Judged {
    pub(super) refused: Vec<Refused>,
    /// Writes that were refused only for now, and why.
    pub(super) overloaded: Option<(Batch, String)>,
}

#[derive(Deserialize)]
struct Answer {
    errors: bool,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Item {
    Create(Outcome),
    Index(Outcome),
    Delete(Outcome),
}

#[derive(Deserialize)]
struct Outcome {
    status: u16,
    #[serde(default)]
    error: Cause,
}

#[derive(Default, Deserialize)]
struct Cause {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    reason: String,
}

pub(super) fn judge(reply: &Reply, batch: &Batch) -> Result<Judged, HistoryError> {
    let answer: Answer = reply.read()?;
    let mut judged = Judged { refused: Vec::new(), overloaded: None };
    if answer.items.len() != batch.writes.len() {
        let why = format!("a bulk of {} writes was answered with {}", batch.writes.len(), answer.items.len());
        return Err(HistoryError::Failed(why));
    }
    if !answer.errors {
        return Ok(judged);
    }
    let mut overloaded = Vec::new();
    for (item, write) in answer.items.iter().zip(&batch.writes) {
        let outcome = match item {
            Item::Create(outcome) | Item::Index(outcome) => outcome,
            // To remove what is not there is done.
            Item::Delete(outcome) if outcome.status == 404 => continue,
            Item::Delete(outcome) => outcome,
        };
        let Outcome { status, error: Cause { kind, reason } } = outcome;
        match *status {
            // 409: it is there already, or a newer one is.
            200..300 | 409 => {}
            400 if is_of_document(kind, reason) => {
                judged.refused.push(Refused { number: write.number, why: words(*status, kind, reason) });
            }
            // The thread pool's queue is full: soon it is not. All else that waiting mends takes longer.
            429 if kind != "cluster_block_exception" => overloaded.push((write.clone(), words(*status, kind, reason))),
            _ => return Err(refusal(*status, kind, reason)),
        }
    }
    if let Some((_, why)) = overloaded.first() {
        let why = why.clone();
        let writes: Vec<Write> = overloaded.into_iter().map(|(write, _)| write).collect();
        judged.overloaded = Some((batch.only(&writes), why));
    }
    Ok(judged)
}

/// Whether a bad request is the document's fault, rather than that of its index.
fn is_of_document(kind: &str, reason: &str) -> bool {
    match kind {
        "document_parsing_exception" | "mapper_parsing_exception" | "strict_dynamic_mapping_exception" => true,
        // So a term is refused that is too long, and a number or date out of range; but so are mistakes of operation,
        // for want of a free shard or of a pipeline: these wait for an operator.
        "illegal_argument_exception" => reason.contains("immense term") || reason.contains("failed to parse"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{batch, numbers};
    use super::*;
    use serde_json::{Value, json};

    fn reply(items: Value) -> Reply {
        Reply { status: 200, body: json!({ "errors": true, "items": items }).to_string().into() }
    }

    fn item(status: u16, kind: &str) -> Value {
        json!({ "index": { "status": status, "error": { "type": kind, "reason": "r" } } })
    }

    #[test]
    fn each_write_is_judged_by_itself() {
        let items = json!([
            { "index": { "status": 201 } },
            item(409, "version_conflict_engine_exception"),
            item(400, "document_parsing_exception"),
            item(429, "es_rejected_execution_exception"),
        ]);
        let judged = judge(&reply(items), &batch(4)).unwrap();
        assert_eq!(judged.refused, [Refused { number: 2, why: "400 document_parsing_exception: r".into() }]);
        assert_eq!(numbers(&judged.overloaded.unwrap().0), [3]);
    }

    #[test]
    fn what_is_no_documents_fault_refuses_none() {
        for (status, kind) in [
            (403, "cluster_block_exception"),
            (429, "cluster_block_exception"),
            (503, "unavailable_shards_exception"),
            (400, "validation_exception"),
            (400, "index_closed_exception"),
            (404, "index_not_found_exception"),
        ] {
            let judged = judge(&reply(json!([item(status, kind)])), &batch(1)).map(|judged| judged.refused);
            assert!(matches!(judged, Err(HistoryError::Unavailable(_))), "{status} {kind}: {judged:?}");
        }
        let judged = judge(&reply(json!([item(403, "security_exception")])), &batch(1)).map(|judged| judged.refused);
        assert!(matches!(judged, Err(HistoryError::Failed(_))), "{judged:?}");
        let judged = judge(&reply(json!([])), &batch(1)).map(|judged| judged.refused);
        assert!(matches!(judged, Err(HistoryError::Failed(_))), "{judged:?}");
    }
}
