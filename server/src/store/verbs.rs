//! The verbs: arguments packed, one script called, its reply taken apart.

use super::dequeue::Dequeue;
use super::outbox::OutboxFull;
use super::reply::{ItemContext, Reply, defect, pieces, unreadable};
use super::view::{Stored, View};
use super::{Caller, RedisStore};
use bytes::Bytes;
use redis::Cmd;
use tallystone_lua::constants::Answer;
use tallystone_lua::{Script, ShardKeys, keys, record};
use tallystone_model::config::{QueueConfig, QueuePatch};
use tallystone_model::explain::{Facts, Holder};
use tallystone_model::invariants::{INVARIANTS, Violation};
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::message::{Enqueued, Message, NewMessage};
use tallystone_model::store::*;
use tallystone_model::{Filter, MessageId, QueueName, Refusal, Shard, State, Store};

fn stored_id(id: &MessageId) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.as_str().len());
    record::encode_id(id, &mut out);
    out
}

/// The exclusivity key of the queue, where the message does not carry it (Q4).
fn lacking_key<'a>(config: &'a QueueConfig, message: &NewMessage) -> Option<&'a str> {
    config.queue_type.key().filter(|key| message.metadata.get(key).is_none())
}

pub(super) fn not_paused(shard: &Shard, config: &QueueConfig) -> Result<(), Refusal> {
    if config.dequeue_blocked { Err(Refusal::DequeueBlocked { queue: shard.queue.to_string() }) } else { Ok(()) }
}

fn not_closed(shard: &Shard, config: &QueueConfig) -> Result<(), Refusal> {
    if config.enqueue_blocked { Err(Refusal::EnqueueBlocked { queue: shard.queue.to_string() }) } else { Ok(()) }
}

fn context<'a>(shard: &'a Shard, view: &View) -> ItemContext<'a> {
    ItemContext {
        queue: shard.queue.as_str(),
        max_depth: view.config().max_depth,
        outbox_events_max: view.outbox_events_max,
    }
}

/// A request's 8-byte mark in the head of the message whose lease it extended; zeros: no request id.
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

impl RedisStore {
    /// A verb whose items are transitions: ids in, code(1) state(1) version(4) out.
    async fn transitions<I: Sync>(
        &self,
        shard: &Shard,
        script: Script,
        items: &[I],
        id_of: impl Fn(&I) -> &MessageId,
        fill: impl Fn(&I, &mut Cmd) + Send + Sync,
    ) -> Items<Transition> {
        let mut results = Vec::with_capacity(items.len());
        for items in items.chunks(BATCH_ITEMS_MAX) {
            let ids: Vec<&MessageId> = items.iter().map(&id_of).collect();
            let add = |_: &View, command: &mut Cmd| {
                for (item, id) in items.iter().zip(&ids) {
                    command.arg(stored_id(id));
                    fill(item, command);
                }
                Ok(())
            };
            // The lane looks again behind these by itself; what an operator makes runnable is published to every server.
            let caller = match script {
                Script::Complete | Script::Release | Script::Cancel => Caller::Lane,
                _ => Caller::Other,
            };
            let (view, mut reply) = self.shared.run(shard, script, caller, add).await?;
            let packed = reply.bytes()?;
            let context = context(shard, &view);
            results.extend(
                ids.iter().zip(pieces(&packed, 6, items.len())?).map(|(id, piece)| context.transition(id, piece)),
            );
        }
        Ok(results)
    }

    /// Refuses by the configuration as it stands now: what is believed may be old, and no script call will tell.
    async fn keep(&self, shard: &Shard, rule: fn(&Shard, &QueueConfig) -> Result<(), Refusal>) -> Result<(), Refusal> {
        match rule(shard, self.shared.view(shard).await?.config()) {
            Ok(()) => Ok(()),
            Err(_) => rule(shard, self.shared.read(shard).await?.0.config()),
        }
    }

    fn message(view: &View, id: MessageId, head: &Bytes, body: &Bytes) -> Result<Message, Refusal> {
        if body.is_empty() {
            return Err(Refusal::MessageNotFound { id: id.to_string() });
        }
        let config = view.config();
        record::decode_message(id, head, body, config.max_attempts, config.terminal_retention_ms).map_err(unreadable)
    }
}

/// Which messages a step of a purge takes, beside those that [`Store::purge`] names.
const ENDED_ONLY: u8 = 2;

impl RedisStore {
    async fn purge_step(&self, shard: &Shard, which: u8, cursor: &str) -> Result<Purged, Refusal> {
        // Nobody waits for a purge: it does not push out events that history has not taken yet.
        let bound = &self.shared.options.outbox;
        if bound.full == OutboxFull::RefuseEnqueue
            && self.outbox_length(shard).await?.is_some_and(|length| length >= u64::from(bound.events_max))
        {
            let queue = shard.queue.to_string();
            return Err(Refusal::OutboxFull { queue, events_max: bound.events_max.into() });
        }
        let (scan, until) = match cursor {
            "" => ("0", "0"),
            cursor => cursor.split_once('-').ok_or_else(|| Refusal::invalid("cursor", "is not one of ours"))?,
        };
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(which).arg(scan).arg(until);
            Ok(())
        };
        let (_, mut reply) = self.shared.run(shard, Script::Purge, Caller::Other, fill).await?;
        let (purged, scan, until) = (reply.number()?, reply.text()?, reply.text()?);
        let next_cursor = if scan == "0" { String::new() } else { format!("{scan}-{until}") };
        Ok(Purged { purged, next_cursor })
    }
}

impl Store for RedisStore {
    async fn create_queue(&self, name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal> {
        let config = config.patched(&QueuePatch::default())?;
        let shard = Shard::first(name);
        self.shared.register(name, true).await?;
        let stored =
            serde_json::to_vec(&Stored::new(config.clone())).map_err(|error| Refusal::Internal(error.to_string()))?;
        let keys = ShardKeys::new(&shard).all([]);
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::CreateQueue.sha1()).arg(keys.len()).arg(&keys).arg(self.shared.now_argument()).arg(stored);
        let mut reply = Reply::read(self.shared.link.eval(&command, true).await?, Answer::from_code)?;
        let view = self.shared.believe(&shard, &reply.bytes()?, &reply.bytes()?)?;
        if *view.config() != config {
            return Err(Refusal::QueueExists { queue: name.to_string() });
        }
        Ok(view.queue(name))
    }

    async fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        let edit = |stored: &mut Stored| {
            let config = stored.config.patched(&patch)?;
            // What is declared no more goes, unless a filter had asked for it before.
            stored.indexes.retain(|index| index.used_at_ms > 0 || config.indexes.contains(&index.keys));
            for keys in &config.indexes {
                if !stored.add_index(keys.clone(), true, 0) {
                    return Err(Refusal::TooManyIndexes { queue: name.to_string() });
                }
            }
            stored.config = config;
            Ok(())
        };
        let shard = Shard::first(name);
        let view = self.shared.change(&shard, edit).await?;
        let declared: Vec<_> =
            view.stored.indexes.iter().filter(|index| index.building).map(|index| index.keys.clone()).collect();
        for keys in declared {
            match self.shared.build(&shard, keys).await {
                Ok(()) | Err(Refusal::IndexBuilding { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(view.queue(name))
    }

    async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        Ok(self.shared.read(&Shard::first(name)).await?.0.queue(name))
    }

    async fn list_queues(&self, prefix: &str, cursor: &str, limit: usize) -> Result<Page<Queue>, Refusal> {
        let from = if cursor.is_empty() { format!("[{prefix}") } else { format!("({cursor}") };
        let to = if prefix.is_empty() { "+".to_owned() } else { format!("({prefix}\x7f") };
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(keys::QUEUES).arg(from).arg(to).arg("LIMIT").arg(0).arg(limit);
        let names: Vec<String> = redis::from_redis_value(self.shared.link.call(&command).await?)
            .map_err(|error| Refusal::Internal(error.to_string()))?;
        let next_cursor = if names.len() == limit { names.last().cloned().unwrap_or_default() } else { String::new() };
        let mut items = Vec::with_capacity(names.len());
        for name in &names {
            match self.get_queue(&QueueName::parse("name", name)?).await {
                Ok(queue) => items.push(queue),
                // Registered, and not yet made or already gone.
                Err(Refusal::QueueNotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(Page { items, next_cursor })
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<(), Refusal> {
        let shard = Shard::first(name);
        // Its last events are still to be read by whoever reads outboxes then. Said before it is deleted, or a crash in
        // between would lose them; a queue that stays is struck off when outboxes are next looked for.
        self.shared.link.call(redis::cmd("SADD").arg(keys::LEFT_OUTBOXES).arg(shard.tag())).await?;
        let delete = async || self.shared.run(&shard, Script::DeleteQueue, Caller::Other, |_, _| Ok(())).await;
        let mut deleted = delete().await;
        while matches!(&deleted, Ok((_, reply)) if reply.answer == Answer::Again) {
            let mut cursor = String::new();
            loop {
                cursor = self.purge_step(&shard, ENDED_ONLY, &cursor).await?.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
            deleted = delete().await;
        }
        match deleted {
            Ok((_, reply)) if reply.answer == Answer::NotEmpty => {
                return Err(Refusal::QueueNotEmpty { queue: name.to_string() });
            }
            Ok(_) => {}
            // The call is repeated: its reply was lost, perhaps before the registry was written.
            Err(Refusal::QueueNotFound { .. }) if self.shared.was_deleted(&shard).await? => {}
            Err(refusal) => return Err(refusal),
        }
        self.shared.forget(&shard);
        self.shared.link.call(redis::cmd("ZREM").arg(keys::QUEUES).arg(name.as_str())).await?;
        // A creation that came between the two would be off the list.
        match self.shared.read(&shard).await {
            Ok(_) => self.shared.register(name, false).await,
            Err(Refusal::QueueNotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    async fn purge(&self, shard: &Shard, include_running: bool, cursor: &str) -> Result<Purged, Refusal> {
        self.purge_step(shard, u8::from(include_running), cursor).await
    }

    async fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> Items<Enqueued> {
        self.keep(shard, not_closed).await?;
        let mut results = Vec::with_capacity(messages.len());
        for messages in messages.chunks(BATCH_ITEMS_MAX) {
            self.enqueue_chunk(shard, messages, &mut results).await?;
        }
        Ok(results)
    }

    async fn dequeue(&self, shard: &Shard, requests: Vec<DequeueRequest>, wait: bool) -> Result<Dequeued, Refusal> {
        self.keep(shard, not_paused).await?;
        Dequeue::new(&self.shared, shard, requests, wait).run().await
    }

    async fn complete(&self, shard: &Shard, leases: Vec<LeaseRef>) -> Items<Transition> {
        let fill = |lease: &LeaseRef, command: &mut Cmd| {
            command.arg(lease.fencing_token);
        };
        self.transitions(shard, Script::Complete, &leases, |lease| &lease.id, fill).await
    }

    async fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> Items<Extended> {
        let mut results = Vec::with_capacity(extensions.len());
        for extensions in extensions.chunks(BATCH_ITEMS_MAX) {
            let add = |_: &View, command: &mut Cmd| {
                for extension in extensions {
                    command.arg(stored_id(&extension.lease.id)).arg(extension.lease.fencing_token);
                    command.arg(extension.lease_ms.unwrap_or(0)).arg(&extension_mark(&extension.request_id)[..]);
                }
                Ok(())
            };
            let (view, mut reply) = self.shared.run(shard, Script::ExtendLease, Caller::Lane, add).await?;
            let packed = reply.bytes()?;
            let context = context(shard, &view);
            for (extension, piece) in extensions.iter().zip(pieces(&packed, 8, extensions.len())?) {
                let extended = context.numbered(&extension.lease.id, piece);
                results.push(extended.map(|(_, expires_at_ms)| Extended { expires_at_ms }));
            }
        }
        Ok(results)
    }

    async fn release(&self, shard: &Shard, releases: Vec<Release>) -> Items<Transition> {
        let fill = |release: &Release, command: &mut Cmd| {
            let delay_ms = release.delay_ms.map_or(-1, |delay_ms| delay_ms as i64);
            command.arg(release.lease.fencing_token).arg(delay_ms).arg(&release.reason);
        };
        self.transitions(shard, Script::Release, &releases, |release| &release.lease.id, fill).await
    }

    async fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>) -> Items<Transition> {
        let fill = |cancellation: &Cancellation, command: &mut Cmd| {
            command.arg(cancellation.fencing_token).arg(u8::from(cancellation.force)).arg(&cancellation.reason);
        };
        self.transitions(shard, Script::Cancel, &cancellations, |cancellation| &cancellation.id, fill).await
    }

    async fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Transition> {
        self.transitions(shard, Script::Redrive, &ids, |id| id, |_, _| {}).await
    }

    async fn update_message(&self, shard: &Shard, id: &MessageId, patch: MessagePatch) -> Result<Transition, Refusal> {
        let fill = |_: &MessageId, command: &mut Cmd| {
            let priority = patch.priority.map(record::encode_priority);
            command.arg(priority.as_ref().map_or(&[][..], |bytes| &bytes[..]));
            command.arg(patch.visible_at_ms.map_or(-1, |at_ms| at_ms as i64));
        };
        let ids = [id.clone()];
        let results = self.transitions(shard, Script::UpdateMessage, &ids, |id| id, fill).await?;
        results.into_iter().next().unwrap_or_else(|| Err(defect("no result")))
    }

    async fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Message> {
        let mut results = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH_ITEMS_MAX) {
            let fill = |_: &View, command: &mut Cmd| {
                ids.iter().for_each(|id| {
                    command.arg(stored_id(id));
                });
                Ok(())
            };
            let (view, mut reply) = self.shared.run(shard, Script::GetMessages, Caller::Other, fill).await?;
            for id in ids {
                let (head, body) = (reply.bytes()?, reply.bytes()?);
                results.push(Self::message(&view, id.clone(), &head, &body));
            }
        }
        Ok(results)
    }

    async fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> Result<Page<Message>, Refusal> {
        let cursor = decode_cursor(state, cursor)?;
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(state as u8).arg(cursor.as_slice()).arg(limit);
            Ok(())
        };
        let (view, mut reply) = self.shared.run(shard, Script::ListMessages, Caller::Other, fill).await?;
        let next_cursor = encode_cursor(&reply.bytes()?);
        let mut items = Vec::new();
        while !reply.is_at_end() {
            let (id, head, body) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
            items.push(Self::message(&view, record::decode_id(&id).map_err(unreadable)?, &head, &body)?);
        }
        Ok(Page { items, next_cursor })
    }

    async fn explain(&self, shard: &Shard, id: &MessageId) -> Result<Facts, Refusal> {
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(stored_id(id));
            Ok(())
        };
        let (view, mut reply) = self.shared.run(shard, Script::Explain, Caller::Other, fill).await?;
        let (head, body) = (reply.bytes()?, reply.bytes()?);
        let message = Self::message(&view, id.clone(), &head, &body)?;
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

    async fn depth(&self, shard: &Shard, filter: Option<&Filter>) -> Result<Depth, Refusal> {
        let mut depth = Depth::default();
        let Some(filter) = filter else {
            let (_, counters) = self.shared.read(shard).await?;
            for (state, count) in State::ALL.iter().zip(counters.counts) {
                *depth.of_mut(*state) = count;
            }
            return Ok(depth);
        };
        let fill = |view: &View, command: &mut Cmd| {
            let (position, tuple) = place_of(view, filter)?;
            command.arg(&[position][..]).arg(tuple);
            Ok(())
        };
        let mut reply = loop {
            self.shared.ready_indexes(shard, std::slice::from_ref(filter), |_| Ok(())).await?;
            match self.shared.run(shard, Script::Depth, Caller::Other, fill).await {
                Ok((_, reply)) => break reply,
                // The indexes changed between the two calls: look again.
                Err(Refusal::IndexBuilding { .. }) => {}
                Err(refusal) => return Err(refusal),
            }
        };
        for state in State::ALL {
            *depth.of_mut(state) = reply.number()?;
        }
        Ok(depth)
    }

    async fn sweep(&self, shard: &Shard) -> Result<Swept, Refusal> {
        let (_, mut reply) = self.shared.run(shard, Script::Sweep, Caller::Other, |_, _| Ok(())).await?;
        let (promoted, expired, collected) = (reply.number()?, reply.number()?, reply.number()?);
        let next_ms = Some(reply.number()?).filter(|at_ms| *at_ms > 0);
        let now_ms = reply.number()?;
        self.shared.drop_unused(shard).await?;
        Ok(Swept { promoted, expired, collected, next_ms, now_ms })
    }

    async fn check(&self, shard: &Shard, cursor: &str) -> Result<(u64, Page<Violation>), Refusal> {
        let (phase, at) = match cursor {
            "" => ("0", ""),
            cursor => cursor.split_once('-').ok_or_else(|| Refusal::invalid("cursor", "is not one of ours"))?,
        };
        let phase: u8 = phase.parse().map_err(|_| Refusal::invalid("cursor", "is not one of ours"))?;
        if !at.is_empty() && !is_number(at.as_bytes()) {
            return Err(Refusal::invalid("cursor", "is not one of ours"));
        }
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(phase).arg(at);
            Ok(())
        };
        let (_, mut reply) = self.shared.run(shard, Script::Check, Caller::Other, fill).await?;
        let (phase, at, looked_at) = (reply.number()?, reply.text()?, reply.number()?);
        let mut items = Vec::new();
        while !reply.is_at_end() {
            let (id, detail) = (reply.text()?, reply.bytes()?);
            let invariant =
                INVARIANTS.iter().find(|invariant| invariant.id == id).ok_or_else(|| defect("no invariant"))?;
            items.push(Violation { invariant: invariant.id, detail: detail.escape_ascii().to_string() });
        }
        let next_cursor = if phase == 0 && at.is_empty() { String::new() } else { format!("{phase}-{at}") };
        Ok((looked_at, Page { items, next_cursor }))
    }

    fn on_ready(&self, tell: Box<dyn Fn(&Shard) + Send + Sync>) {
        self.shared.wakes.set(tell);
    }
}

impl RedisStore {
    async fn enqueue_chunk(
        &self,
        shard: &Shard,
        messages: &[NewMessage],
        results: &mut Vec<Result<Enqueued, Refusal>>,
    ) -> Result<(), Refusal> {
        const COALESCE: u8 = 1;
        const INVISIBLE: u8 = 2;
        let ids: Vec<Vec<u8>> = messages.iter().map(|message| stored_id(&message.id)).collect();
        let mut taken: Vec<usize> = Vec::new();
        let fill = |view: &View, command: &mut Cmd| {
            let config = view.config();
            not_closed(shard, config)?;
            taken = (0..messages.len()).filter(|at| lacking_key(config, &messages[*at]).is_none()).collect();
            let kinds: Vec<u8> = taken
                .iter()
                .map(|at| {
                    let message = &messages[*at];
                    let invisible = message.invisibility_ms.unwrap_or(config.invisibility_ms) > 0;
                    u8::from(message.coalesce) * COALESCE + u8::from(invisible) * INVISIBLE
                })
                .collect();
            command.arg(kinds);
            let mut content = Vec::new();
            for at in &taken {
                content.clear();
                record::encode_content(&messages[*at], config.queue_type.key(), &mut content);
                command.arg(ids[*at].as_slice()).arg(content.as_slice());
            }
            Ok(())
        };
        let (view, mut reply) = self.shared.run(shard, Script::Enqueue, Caller::Lane, fill).await?;
        let packed = reply.bytes()?;
        let mut pieces = pieces(&packed, 7, taken.len())?;
        let context = context(shard, &view);
        results.extend(messages.iter().map(|message| {
            if let Some(key) = lacking_key(view.config(), message) {
                return Err(Refusal::invalid("metadata", format!("lacks the exclusivity key '{key}' of the queue")));
            }
            let piece = pieces.next().ok_or_else(|| defect("too few results"))?;
            let enqueued_at_ms = context.enqueued(&message.id, piece)?;
            Ok(Enqueued { id: message.id.clone(), enqueued_at_ms })
        }));
        Ok(())
    }
}

/// A filter as the scripts take it: its index's place in the view, and its values. The view may have lost the index
/// since it was found: then the caller asks again, and it is made anew.
pub(super) fn place_of(view: &View, filter: &Filter) -> Result<(u8, Vec<u8>), Refusal> {
    match view.index_of(filter) {
        Some((position, index)) if !index.building => {
            let mut tuple = Vec::new();
            record::encode_tuple(filter, &mut tuple);
            Ok((position, tuple))
        }
        _ => Err(Refusal::IndexBuilding { keys: filter.index_keys().to_string() }),
    }
}

fn encode_cursor(raw: &[u8]) -> String {
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A page's cursor is given back by callers: it must be one that a page of this state could have had.
fn decode_cursor(state: State, cursor: &str) -> Result<Vec<u8>, Refusal> {
    let foreign = || Refusal::invalid("page_token", "is not one of ours");
    let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let raw: Vec<u8> = cursor.as_bytes().chunks(2).map(pair).collect::<Option<_>>().ok_or_else(foreign)?;
    let is_ours = match state {
        State::Pending => matches!(raw.first(), Some(b'r' | b'b')),
        State::Invisible | State::Running => raw.len() > 6,
        State::Completed | State::Canceled | State::Errored => is_number(&raw),
    };
    if raw.is_empty() || (cursor.len().is_multiple_of(2) && is_ours) { Ok(raw) } else { Err(foreign()) }
}

fn is_number(digits: &[u8]) -> bool {
    (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}
