//! The verbs that only read: messages, pages of them, the facts of Explain, counts, the scrubber.

use super::changes::LARGE_ITEMS;
use super::entry::read;
use super::reply::{defect, unreadable};
use super::shared::{Caller, Shared, filter_arguments};
use super::stored::ErroredIn;
use super::view::View;
use bytes::Bytes;
use redis::Cmd;
use std::sync::Arc;
use tallystone_lua::{Script, record};
use tallystone_model::explain::{Facts, Holder};
use tallystone_model::invariants::{INVARIANTS, Violation};
use tallystone_model::message::Message;
use tallystone_model::store::{Ages, Depth, Items, Page};
use tallystone_model::{Filter, MessageId, Refusal, Shard, State};

/// `attempts`: only where one message is read.
fn message(
    shard: &Shard,
    view: &View,
    id: MessageId,
    head: &Bytes,
    body: &Bytes,
    result: Bytes,
    attempts: Option<Bytes>,
) -> Result<Message, Refusal> {
    if body.is_empty() {
        return Err(Refusal::MessageNotFound { id: id.to_string() });
    }
    let decoded = record::decode_message(id, head, body, result, attempts.as_deref(), view.config());
    let mut message = decoded.map_err(unreadable)?;
    message.fencing_token = shard.token(message.fencing_token);
    for attempt in &mut message.last_attempts {
        attempt.fencing_token = shard.token(attempt.fencing_token);
    }
    Ok(message)
}

impl Shared {
    pub(super) async fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Message> {
        let mut results = Vec::with_capacity(ids.len());
        for ids in ids.chunks(LARGE_ITEMS) {
            let fill = |_: &View, command: &mut Cmd| {
                ids.iter().for_each(|id| {
                    command.arg(record::stored_id(id));
                });
                Ok(())
            };
            let (view, mut reply) = self.run(shard, Script::GetMessages, Caller::Other, fill).await?;
            for id in ids {
                let (head, body, result, attempts) = (reply.bytes()?, reply.bytes()?, reply.bytes()?, reply.bytes()?);
                results.push(message(shard, &view, id.clone(), &head, &body, result, Some(attempts)));
            }
        }
        Ok(results)
    }

    pub(super) async fn holds(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<bool>, Refusal> {
        // A shard that is gone holds nothing, and its queue may have other shards now.
        self.view(shard).await?;
        let body = self.keyspace.shard(shard).key("body");
        let mut commands = redis::pipe();
        ids.iter().for_each(|id| {
            commands.cmd("HEXISTS").arg(&body).arg(record::stored_id(id));
        });
        self.link.calls(&commands, false).await?.into_iter().map(read).collect()
    }

    pub(super) async fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> Result<Page<Message>, Refusal> {
        let cursor = decode_cursor(state, cursor)?;
        let fill = |view: &View, command: &mut Cmd| {
            let in_done = u8::from(view.stored.errored_in != ErroredIn::Set);
            command.arg(state as u8).arg(cursor.as_slice()).arg(limit).arg(in_done);
            Ok(())
        };
        let (view, mut reply) = self.run(shard, Script::ListMessages, Caller::Other, fill).await?;
        let next_cursor = encode_cursor(&reply.bytes()?);
        let mut items = Vec::new();
        while !reply.is_at_end() {
            let (id, head, body) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
            items.push(message(
                shard,
                &view,
                record::decode_id(&id).map_err(unreadable)?,
                &head,
                &body,
                reply.bytes()?,
                None,
            )?);
        }
        Ok(Page { items, next_cursor })
    }

    pub(super) async fn explain(&self, shard: &Shard, id: &MessageId) -> Result<Facts, Refusal> {
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(record::stored_id(id));
            Ok(())
        };
        let (view, mut reply) = self.run(shard, Script::Explain, Caller::Other, fill).await?;
        let (head, body) = (reply.bytes()?, reply.bytes()?);
        let message = message(shard, &view, id.clone(), &head, &body, reply.bytes()?, None)?;
        let (holder_id, holder_head, key_head) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
        let holder = if holder_id.is_empty() {
            None
        } else {
            let (worker, expires_at_ms) = record::decode_holder(&holder_head).map_err(unreadable)?;
            Some(Holder { id: record::decode_id(&holder_id).map_err(unreadable)?, worker, expires_at_ms })
        };
        let key_head = if key_head.is_empty() { None } else { Some(record::decode_id(&key_head).map_err(unreadable)?) };
        Ok(Facts { message, dequeue_blocked: view.config().dequeue_blocked, holder, key_head, ahead: reply.number()? })
    }

    pub(super) async fn depth(self: &Arc<Self>, shard: &Shard, filter: Option<&Filter>) -> Result<Depth, Refusal> {
        let Some(filter) = filter else {
            return Ok(depth_of(self.read(shard).await?.1.counts));
        };
        let fill = |view: &View, command: &mut Cmd| {
            let (position, tuple) = filter_arguments(view, filter)?;
            command.arg(&[position][..]).arg(tuple);
            Ok(())
        };
        let mut reply = loop {
            self.ready_indexes(shard, std::slice::from_ref(filter), |_| Ok(())).await?;
            match self.run(shard, Script::Depth, Caller::Other, fill).await {
                Ok((_, reply)) => break reply,
                // The indexes changed between the two calls: find the index again.
                Err(Refusal::IndexBuilding { .. }) => {}
                Err(refusal) => return Err(refusal),
            }
        };
        let mut depth = Depth::default();
        for state in State::ALL {
            *depth.of_mut(state) = reply.number()?;
        }
        Ok(depth)
    }

    pub(super) async fn ages(&self, shard: &Shard) -> Result<Ages, Refusal> {
        let (_, mut reply) = self.run(shard, Script::Ages, Caller::Other, |_, _| Ok(())).await?;
        let now_ms = reply.number()?;
        let age_ms = |at_ms: u64| (at_ms > 0).then(|| now_ms.saturating_sub(at_ms));
        Ok(Ages { pending_ms: age_ms(reply.number()?), lease_ms: age_ms(reply.number()?) })
    }

    pub(super) async fn check(&self, shard: &Shard, cursor: &str) -> Result<(u64, Page<Violation>), Refusal> {
        let (phase, at) = match cursor {
            "" => ("0", ""),
            cursor => {
                cursor.split_once('-').ok_or_else(|| Refusal::invalid("cursor", "is not a cursor of this check"))?
            }
        };
        let phase: u8 = phase.parse().map_err(|_| Refusal::invalid("cursor", "is not a cursor of this check"))?;
        if !at.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':') {
            return Err(Refusal::invalid("cursor", "is not a cursor of this check"));
        }
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(phase).arg(at);
            Ok(())
        };
        let (_, mut reply) = self.run(shard, Script::Check, Caller::Other, fill).await?;
        let (phase, at, checked) = (reply.number()?, reply.text()?, reply.number()?);
        let mut items = Vec::new();
        while !reply.is_at_end() {
            let (id, detail) = (reply.text()?, reply.bytes()?);
            let invariant =
                INVARIANTS.iter().find(|invariant| invariant.id == id).ok_or_else(|| defect("no invariant"))?;
            items.push(Violation { invariant: invariant.id, detail: detail.escape_ascii().to_string() });
        }
        let next_cursor = if phase == 0 && at.is_empty() { String::new() } else { format!("{phase}-{at}") };
        Ok((checked, Page { items, next_cursor }))
    }
}

/// The numbers of a state record, in the order of the states' numbers.
pub(super) fn depth_of(counts: [u64; 6]) -> Depth {
    let mut depth = Depth::default();
    for (state, count) in State::ALL.iter().zip(counts) {
        *depth.of_mut(*state) = count;
    }
    depth
}

pub(super) fn encode_cursor(raw: &[u8]) -> String {
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes a cursor that a caller sent: it must be one that a page of this state can have.
pub(super) fn decode_cursor(state: State, cursor: &str) -> Result<Vec<u8>, Refusal> {
    let invalid = || Refusal::invalid("page_token", "is not a page token of this list");
    let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let raw: Vec<u8> = cursor.as_bytes().chunks(2).map(pair).collect::<Option<_>>().ok_or_else(invalid)?;
    let is_valid = match state {
        State::Pending => matches!(raw.first(), Some(b'r' | b'b')),
        State::Invisible | State::Running => raw.len() > 6,
        State::Errored => is_number(&raw) || raw.len() > 6,
        State::Completed | State::Canceled => is_number(&raw),
    };
    if raw.is_empty() || (cursor.len().is_multiple_of(2) && is_valid) { Ok(raw) } else { Err(invalid()) }
}

fn is_number(digits: &[u8]) -> bool {
    (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}
