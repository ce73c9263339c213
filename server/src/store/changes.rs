//! The verbs that change messages: pack the arguments, call one script, decode its results.

use super::reply::{ItemContext, defect, pieces};
use super::shared::{Caller, Shared, not_closed};
use super::view::View;
use redis::Cmd;
use tallystone_lua::{Script, record};
use tallystone_model::config::QueueConfig;
use tallystone_model::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, PAYLOAD_BYTES_MAX};
use tallystone_model::message::{Enqueued, NewMessage};
use tallystone_model::store::*;
use tallystone_model::{MessageId, PriorityClass, Refusal, Shard};

/// Items of one script call that may read the whole payload of each.
pub(super) const LARGE_ITEMS: usize = BATCH_BYTES_MAX / PAYLOAD_BYTES_MAX;

/// The priority class of a message that the queue takes. It must have the exclusivity key (Q4) and no unknown class (Q28).
fn check_item<'a>(config: &'a QueueConfig, message: &NewMessage) -> Result<Option<PriorityClass<'a>>, Refusal> {
    if let Some(key) = config.queue_type.key().filter(|key| message.metadata.get(key).is_none()) {
        return Err(Refusal::invalid("metadata", format!("lacks the exclusivity key '{key}' of the queue")));
    }
    config.priority_classes.of(message)
}

/// Refuses messages that another shard of its age takes by the current configuration: their sender has an earlier one. What a shard has
/// accepted so, no other shard accepts (Q17).
fn are_of_shard(shard: &Shard, view: &View, messages: &[NewMessage]) -> Result<(), Refusal> {
    if shard.number == 0 && !view.is_of_several() {
        return Ok(());
    }
    let layout = view.stored.layout();
    let are_its = match layout.generation_of(shard.number) {
        Some(generation) => messages.iter().all(|message| layout.number_of(generation, message) == shard.number),
        // The first shard has no message any more, and the script says so. Other shards are removed.
        None => shard.number == 0,
    };
    if are_its { Ok(()) } else { Err(Refusal::earlier_layout()) }
}

pub(super) fn context<'a>(shard: &'a Shard, view: &View) -> ItemContext<'a> {
    ItemContext {
        queue: shard.queue.as_str(),
        max_depth: view.config().max_depth,
        outbox_events_max: view.outbox_events_max,
    }
}

/// The refusal of a chunk of a call's items: the chunks of the items `before` it have taken effect.
fn after_chunks(before: usize, refusal: Refusal) -> Refusal {
    if before > 0 { refusal.after_an_earlier_try() } else { refusal }
}

/// The 8 bytes that stand for a request id in the head of the message whose lease it extended; zeros: no request id.
fn extension_mark(request_id: &str) -> [u8; 8] {
    if request_id.is_empty() {
        return [0; 8];
    }
    let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, request_id.as_bytes());
    let mut mark = [0; 8];
    mark.copy_from_slice(&digest.as_bytes()[..8]);
    mark[0] |= 1;
    mark
}

impl Shared {
    /// Items of one script call (X5): fewer where each changes many filter indexes.
    async fn items_at_once(&self, shard: &Shard) -> Result<usize, Refusal> {
        Ok(BATCH_ITEMS_MAX / (1 + self.view(shard).await?.stored.indexes.len() / 4))
    }

    /// Calls a script whose items begin with an id and result in code(1) state(1) version(4). `fill` adds the other
    /// arguments of an item.
    async fn transitions<I: Sync>(
        &self,
        shard: &Shard,
        script: Script,
        items: &[I],
        id_of: impl Fn(&I) -> &MessageId,
        fill: impl Fn(&I, &mut Cmd) + Send + Sync,
    ) -> Items<Transition> {
        let mut results = Vec::with_capacity(items.len());
        // The lane itself checks for runnable messages after these verbs. After an operator's verbs every server is
        // woken, this one included.
        let (most, mut caller) = match script {
            Script::Release | Script::Cancel => (LARGE_ITEMS, Caller::Lane),
            _ => (BATCH_ITEMS_MAX, Caller::Other),
        };
        for items in items.chunks(most.min(self.items_at_once(shard).await?)) {
            let ids: Vec<&MessageId> = items.iter().map(&id_of).collect();
            let add = |_: &View, command: &mut Cmd| {
                for (item, id) in items.iter().zip(&ids) {
                    command.arg(record::stored_id(id));
                    fill(item, command);
                }
                Ok(())
            };
            let answer = self.run(shard, script, caller.then_other(), add).await;
            let (view, mut reply) = answer.map_err(|refusal| after_chunks(results.len(), refusal))?;
            let packed = reply.bytes()?;
            let context = context(shard, &view);
            results.extend(
                ids.iter().zip(pieces(&packed, 6, items.len())?).map(|(id, piece)| context.transition(id, piece)),
            );
        }
        Ok(results)
    }

    pub(super) async fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> Items<Enqueued> {
        self.options.room.check()?;
        let has_read = self.ensure(shard, not_closed).await?;
        let mut caller = if has_read { Caller::Other } else { Caller::Lane };
        let (mut results, at_once) = (Vec::with_capacity(messages.len()), self.items_at_once(shard).await?);
        while results.len() < messages.len() {
            let before = results.len();
            let messages = &messages[before..messages.len().min(before + at_once)];
            let chunk = self.enqueue_chunk(shard, caller.then_other(), messages, &mut results).await;
            chunk.map_err(|refusal| after_chunks(before, refusal))?;
        }
        Ok(results)
    }

    /// Adds the results of the first of the messages, of all of them unless the script met its bound.
    async fn enqueue_chunk(
        &self,
        shard: &Shard,
        caller: Caller,
        messages: &[NewMessage],
        results: &mut Vec<Result<Enqueued, Refusal>>,
    ) -> Result<(), Refusal> {
        const COALESCE: u8 = 1;
        const INVISIBLE: u8 = 2;
        const OF_CLASS: u8 = 4;
        const ENQUEUED_BYTES: usize = 7;
        let ids: Vec<Vec<u8>> = messages.iter().map(|message| record::stored_id(&message.id)).collect();
        let mut checked: Vec<Result<(), Refusal>> = Vec::new();
        let fill = |view: &View, command: &mut Cmd| {
            let config = view.config();
            not_closed(shard, config)?;
            are_of_shard(shard, view, messages)?;
            let mut taken = Vec::with_capacity(messages.len());
            let items = messages.iter().zip(&ids);
            checked = items
                .map(|(message, id)| {
                    taken.push((message, id, check_item(config, message)?));
                    Ok(())
                })
                .collect();
            let kinds: Vec<u8> = taken
                .iter()
                .map(|(message, _, class)| {
                    let invisible = message.invisibility_ms.unwrap_or(config.invisibility_ms) > 0;
                    u8::from(message.coalesce) * COALESCE
                        + u8::from(invisible) * INVISIBLE
                        + u8::from(class.is_some()) * OF_CLASS
                })
                .collect();
            command.arg(kinds);
            let mut content = Vec::new();
            for (message, id, class) in &taken {
                content.clear();
                record::encode_content(message, *class, config.queue_type.key(), &mut content);
                command.arg(id.as_slice()).arg(content.as_slice());
            }
            Ok(())
        };
        let (view, mut reply) = self.run(shard, Script::Enqueue, caller, fill).await?;
        let packed = reply.bytes()?;
        let mut pieces = pieces(&packed, ENQUEUED_BYTES, packed.len() / ENQUEUED_BYTES)?;
        let context = context(shard, &view);
        let before = results.len();
        for (message, checked) in messages.iter().zip(checked) {
            let enqueued = match checked {
                Err(refusal) => Err(refusal),
                Ok(()) => match pieces.next() {
                    None => break,
                    Some(piece) => context.enqueued(&message.id, piece),
                },
            };
            let result = |enqueued_at_ms| Enqueued { id: message.id.clone(), enqueued_at_ms, queue_created: false };
            results.push(enqueued.map(result));
        }
        if results.len() == before || pieces.next().is_some() {
            Err(defect("a wrong number of results"))
        } else {
            Ok(())
        }
    }

    pub(super) async fn complete(&self, shard: &Shard, completions: Vec<Completion>) -> Items<Transition> {
        let (mut results, mut caller) = (Vec::with_capacity(completions.len()), Caller::Lane);
        for completions in completions.chunks(self.items_at_once(shard).await?) {
            let add = |_: &View, command: &mut Cmd| {
                command.arg(completions.len());
                for Completion { lease, .. } in completions {
                    command.arg(record::stored_id(&lease.id)).arg(shard.sequence_of(lease.fencing_token));
                }
                for (at, completion) in completions.iter().enumerate().filter(|(_, item)| !item.result.is_empty()) {
                    command.arg(at + 1).arg(&completion.result[..]);
                }
                Ok(())
            };
            let answer = self.run(shard, Script::Complete, caller.then_other(), add).await;
            let (view, mut reply) = answer.map_err(|refusal| after_chunks(results.len(), refusal))?;
            let packed = reply.bytes()?;
            let context = context(shard, &view);
            for (completion, piece) in completions.iter().zip(pieces(&packed, 6, completions.len())?) {
                results.push(context.transition(&completion.lease.id, piece));
            }
        }
        Ok(results)
    }

    pub(super) async fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> Items<Extended> {
        let (mut results, mut caller) = (Vec::with_capacity(extensions.len()), Caller::Lane);
        for extensions in extensions.chunks(self.items_at_once(shard).await?) {
            let add = |_: &View, command: &mut Cmd| {
                for extension in extensions {
                    let lease = &extension.lease;
                    command.arg(record::stored_id(&lease.id)).arg(shard.sequence_of(lease.fencing_token));
                    command.arg(extension.lease_ms.unwrap_or(0)).arg(&extension_mark(&extension.request_id)[..]);
                }
                Ok(())
            };
            let answer = self.run(shard, Script::ExtendLease, caller.then_other(), add).await;
            let (view, mut reply) = answer.map_err(|refusal| after_chunks(results.len(), refusal))?;
            let packed = reply.bytes()?;
            let context = context(shard, &view);
            for (extension, piece) in extensions.iter().zip(pieces(&packed, 8, extensions.len())?) {
                let extended = context.numbered(&extension.lease.id, piece);
                results.push(extended.map(|(_, expires_at_ms)| Extended { expires_at_ms }));
            }
        }
        Ok(results)
    }

    pub(super) async fn release(&self, shard: &Shard, releases: Vec<Release>) -> Items<Transition> {
        let fill = |release: &Release, command: &mut Cmd| {
            let delay_ms = release.delay_ms.map_or(-1, |delay_ms| delay_ms as i64);
            command.arg(shard.sequence_of(release.lease.fencing_token)).arg(delay_ms);
            command.arg(&release.reason).arg(release.verdict as u8);
        };
        self.transitions(shard, Script::Release, &releases, |release| &release.lease.id, fill).await
    }

    pub(super) async fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>) -> Items<Transition> {
        let fill = |cancellation: &Cancellation, command: &mut Cmd| {
            command.arg(shard.sequence_of(cancellation.fencing_token));
            command.arg(u8::from(cancellation.force)).arg(&cancellation.reason);
        };
        self.transitions(shard, Script::Cancel, &cancellations, |cancellation| &cancellation.id, fill).await
    }

    pub(super) async fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Transition> {
        self.transitions(shard, Script::Redrive, &ids, |id| id, |_, _| {}).await
    }

    pub(super) async fn update_message(
        &self,
        shard: &Shard,
        id: &MessageId,
        patch: MessagePatch,
    ) -> Result<Transition, Refusal> {
        let fill = |_: &MessageId, command: &mut Cmd| {
            let priority = patch.priority.map(record::encode_priority);
            command.arg(priority.as_ref().map_or(&[][..], |bytes| &bytes[..]));
            command.arg(patch.visible_at_ms.map_or(-1, |at_ms| at_ms as i64));
        };
        let ids = [id.clone()];
        let results = self.transitions(shard, Script::UpdateMessage, &ids, |id| id, fill).await?;
        results.into_iter().next().unwrap_or_else(|| Err(defect("no result")))
    }
}
