//! ChangeMessages: one page of a selection is one script call (Q25).

use super::changes::context;
use super::reads::{decode_cursor, encode_cursor};
use super::reply::{defect, unreadable};
use super::shared::{Caller, Shared};
use super::stored::ErroredIn;
use super::view::View;
use redis::Cmd;
use tallystone_lua::constants::FAR_MS;
use tallystone_lua::{Script, record};
use tallystone_model::{Change, ChangeCursor, ChangeRequest, ChangedPage, Refusal, Shard};

impl Shared {
    pub(super) async fn change_messages(
        &self,
        shard: &Shard,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> Result<ChangedPage, Refusal> {
        request.check()?;
        let selection = &request.selection;
        let cursor = ChangeCursor::parse(cursor, selection)?;
        let at = decode_cursor(cursor.state, &cursor.at)?;
        let fill = |view: &View, command: &mut Cmd| {
            let in_done = u8::from(view.stored.errored_in != ErroredIn::Set);
            command.arg(cursor.state as u8).arg(at.as_slice()).arg(limit).arg(in_done).arg(cursor.began_ms);
            command.arg(u8::from(request.dry_run)).arg(selection.entered_from_ms);
            command.arg(selection.entered_to_ms.unwrap_or(FAR_MS));
            command.arg(&selection.reason).arg(selection.reason_contains.to_ascii_lowercase());
            add_change(&request.change, command);
            for (key, value) in selection.filter.iter().flat_map(|filter| filter.pairs()) {
                command.arg(key).arg(value);
            }
            Ok(())
        };
        // Operators' verbs wake every server, this one included.
        let (view, mut reply) = self.run(shard, Script::ChangeMessages, Caller::Other, fill).await?;
        let began_ms = reply.number()?;
        let next_cursor = cursor.next(began_ms, &encode_cursor(&reply.bytes()?), selection);
        let (examined, matched, changed) = (reply.number()?, reply.number()?, reply.number()?);
        let context = context(shard, &view);
        let mut refused = Vec::new();
        while !reply.is_at_end() {
            let (id, packed) = (record::decode_id(&reply.bytes()?).map_err(unreadable)?, reply.bytes()?);
            match context.transition(&id, &packed) {
                Err(refusal) => refused.push((id, refusal)),
                Ok(_) => return Err(defect("a refused message without a refusal")),
            }
        }
        Ok(ChangedPage { examined, matched, changed, refused, next_cursor })
    }
}

fn add_change(change: &Change, command: &mut Cmd) {
    match change {
        Change::Redrive => command.arg("redrive").arg("").arg(-1),
        Change::Cancel { reason } => command.arg("cancel").arg(reason).arg(-1),
        Change::Update(patch) => {
            let priority = patch.priority.map(record::encode_priority);
            command.arg("update").arg(priority.as_ref().map_or(&[][..], |bytes| &bytes[..]));
            command.arg(patch.visible_at_ms.map_or(-1, |at_ms| at_ms as i64))
        }
    };
}
