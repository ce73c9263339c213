//! rpc ChangeMessages (Q25).

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::limits::{PAGE_ITEMS_MAX, REASON_BYTES_MAX};
use tallystone_model::names::check_range;
use tallystone_model::{Change, ChangeRequest, ChangedPage, Refusal, Selection, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::change_messages_request::Change as WireChange;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::ChangeMessagesRequest,
) -> Result<pb::ChangeMessagesResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let limit = if request.page_size == 0 { PAGE_ITEMS_MAX } else { wire::page_size(request.page_size)? };
    let selection = request.selection.unwrap_or_default();
    let selection = parse(selection).map_err(|refusal| status::within("selection", refusal))?;
    let change = change(request.change)?;
    let (cursor, dry_run) = (request.page_token, request.dry_run);
    wire::page_token(&cursor)?;
    let request = ChangeRequest { selection, change, dry_run };
    request.check().map_err(|refusal| status::within("selection", refusal))?;
    let shard = shard(&queue);
    let page = engine.context.store.change_messages(&shard, &request, &cursor, limit).await;
    engine.changed(&shard);
    Ok(to_response(page.map_err(wire::of_page)?))
}

fn parse(selection: pb::Selection) -> Result<Selection, Refusal> {
    let states = selection.states.into_iter().map(|number| wire::state("states", number)).collect::<Result<_, _>>()?;
    let time = |field, value| check_range(field, value, 0, wire::TIME_MS_MAX);
    let to_ms = time("entered_to_ms", selection.entered_to_ms)?;
    Ok(Selection {
        states,
        filter: wire::filter(selection.filter)?,
        reason: selection.reason,
        reason_contains: selection.reason_contains,
        entered_from_ms: time("entered_from_ms", selection.entered_from_ms)?,
        entered_to_ms: Some(to_ms).filter(|to_ms| *to_ms > 0),
    })
}

fn change(change: Option<WireChange>) -> Result<Change, Status> {
    match change {
        None => {
            Err(status::of_call(Refusal::invalid("change", "is absent; must be one of redrive, cancel and update")))
        }
        Some(WireChange::Redrive(_)) => Ok(Change::Redrive),
        Some(WireChange::Cancel(cancel)) => {
            let reason = wire::text("reason", cancel.reason, REASON_BYTES_MAX);
            Ok(Change::Cancel { reason: reason.map_err(|refusal| status::within("cancel", refusal))? })
        }
        Some(WireChange::Update(update)) => {
            let patch = wire::message_patch(update.priority, update.visible_at_ms);
            Ok(Change::Update(patch.map_err(|refusal| status::within("update", refusal))?))
        }
    }
}

fn to_response(page: ChangedPage) -> pb::ChangeMessagesResponse {
    let ChangedPage { examined, matched, changed, refused, next_cursor } = page;
    let refused = refused
        .into_iter()
        .map(|(id, refusal)| wire::to_transition_result(id.to_string(), Err(status::of_message(&refusal))));
    pb::ChangeMessagesResponse {
        examined: wire::to_i64(examined),
        matched: wire::to_i64(matched),
        changed: wire::to_i64(changed),
        refused: refused.collect(),
        next_page_token: next_cursor,
    }
}
