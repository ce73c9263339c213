//! rpc RepairMessages (Q19).

use super::{fields, status};
use crate::store::{HistoryStore, TIME_MS_MAX};
use tallystone_model::limits::{PAGE_ITEMS_MAX, REASON_BYTES_MAX, RESULT_BYTES_MAX, WORKER_BYTES_MAX};
use tallystone_model::names::check_range;
use tallystone_model::{Loss, Shard};
use tallystone_proto::history::v1 as pb;
use tallystone_serving::{Access, Guarded as _, Right};
use tonic::{Request, Status};

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: Request<pb::RepairMessagesRequest>,
) -> Result<pb::RepairMessagesResponse, Status> {
    let access = Access::of(request.extensions());
    let request = request.into_inner();
    // A caller that sees no fencing tokens would write zeros.
    request
        .messages
        .iter()
        .try_for_each(|message| access.require(pb::RepairMessagesRequest::RPC, Right::Consume, &message.queue))?;
    for (field, items) in [("messages", request.messages.len()), ("settled", request.settled.len())] {
        if items > PAGE_ITEMS_MAX {
            return Err(status::invalid(field, format!("has {items} items; at most {PAGE_ITEMS_MAX} are possible")));
        }
    }
    for message in &request.messages {
        check(message)?;
    }
    let settled: Vec<Loss> = request.settled.iter().map(loss).collect::<Result<_, _>>()?;
    // The messages first: a loss is settled only once its messages are repaired.
    let mut repaired = Vec::new();
    if !request.messages.is_empty() {
        repaired = store.repair(&request.messages).await.map_err(status::of_store)?;
    }
    if !settled.is_empty() {
        store.settle_losses(&settled).await.map_err(status::of_store)?;
    }
    Ok(pb::RepairMessagesResponse { repaired })
}

/// Checks that both stores can hold the message.
fn check(message: &pb::IndexedMessage) -> Result<(), Status> {
    shard(&message.queue, message.shard)?;
    fields::id(&message.id)?;
    fields::state("state", message.state)?;
    fields::metadata(message.metadata.clone())?;
    fields::text("worker", message.worker.clone(), WORKER_BYTES_MAX)?;
    fields::text("reason", message.reason.clone(), REASON_BYTES_MAX)?;
    if message.result.len() > RESULT_BYTES_MAX {
        let why = format!("is {} bytes long; the maximum is {RESULT_BYTES_MAX}", message.result.len());
        return Err(status::invalid("result", why));
    }
    if message.version == 0 {
        return Err(status::invalid("version", "is 0; the first is 1".to_owned()));
    }
    for (field, number) in [("sequence", message.sequence), ("fencing_token", message.fencing_token)] {
        if i64::try_from(number).is_err() {
            return Err(status::invalid(field, format!("is {number}; must not be above {}", i64::MAX)));
        }
    }
    for (field, time_ms) in [
        ("enqueued_at_ms", message.enqueued_at_ms),
        ("state_since_ms", message.state_since_ms),
        ("changed_at_ms", message.changed_at_ms),
        ("due_ms", message.due_ms),
    ] {
        check_range(field, time_ms, 0, TIME_MS_MAX).map_err(status::of_refusal)?;
    }
    Ok(())
}

fn loss(loss: &pb::Loss) -> Result<Loss, Status> {
    let lost_to_ms = check_range("lost_to_ms", loss.lost_to_ms, 0, TIME_MS_MAX).map_err(status::of_refusal)?;
    Ok(Loss { shard: shard(&loss.queue, loss.shard)?, lost_to_ms })
}

fn shard(queue: &str, number: u32) -> Result<Shard, Status> {
    let why = |_| status::invalid("shard", format!("is {number}; must not be above {}", u16::MAX));
    Ok(Shard { queue: fields::queue(queue)?, number: u16::try_from(number).map_err(why)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_message_that_no_store_can_hold_is_refused_with_the_field() {
        let good = pb::IndexedMessage {
            queue: "q".to_owned(),
            id: "m".to_owned(),
            state: 2,
            version: 1,
            ..pb::IndexedMessage::default()
        };
        assert!(check(&good).is_ok());
        for (field, message) in [
            ("queue", pb::IndexedMessage { queue: String::new(), ..good.clone() }),
            ("shard", pb::IndexedMessage { shard: 65_536, ..good.clone() }),
            ("id", pb::IndexedMessage { id: String::new(), ..good.clone() }),
            ("state", pb::IndexedMessage { state: 0, ..good.clone() }),
            ("version", pb::IndexedMessage { version: 0, ..good.clone() }),
            ("sequence", pb::IndexedMessage { sequence: u64::MAX, ..good.clone() }),
            ("changed_at_ms", pb::IndexedMessage { changed_at_ms: -1, ..good.clone() }),
            ("result", pb::IndexedMessage { result: vec![0; RESULT_BYTES_MAX + 1].into(), ..good.clone() }),
            ("worker", pb::IndexedMessage { worker: "w".repeat(200), ..good.clone() }),
        ] {
            let refused = check(&message).expect_err(field);
            assert!(refused.message().starts_with(&format!("{field}: ")), "{field}: {}", refused.message());
        }
    }
}
