//! Runs the words of a table through the store and writes down what came of them.

use super::keys;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::explain::hindrances;
use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::RedisStore;
use tallystone_tests::*;

/// One table while it runs.
pub(crate) struct Table {
    queue: TestQueue<RedisStore>,
    store: Arc<RedisStore>,
    redis: TestConnection,
    started_ms: u64,
    /// The tokens of each message's leases, in order.
    fencing_tokens: HashMap<String, Vec<u64>>,
    /// Where the last change_messages ended.
    cursor: String,
}

impl Table {
    /// The table with the replies and keys that were found in place of those that are written.
    pub(crate) async fn run(number: usize, written: &str, redis: Arc<TestRedis>) -> String {
        let stage = Stage::on_redis(&format!("table-{number}"), redis).await;
        let redis = stage.redis.as_ref().expect("a Redis").connection().await;
        let queue = TestQueue {
            store: stage.store.clone(),
            clock: stage.clock.clone(),
            shard: Shard::first(&stage.queue_name()),
        };
        let (store, started_ms) = (stage.store.clone(), stage.clock.now_ms());
        let mut table =
            Table { queue, store, redis, started_ms, fencing_tokens: HashMap::new(), cursor: String::new() };
        let mut reply = String::new();
        let mut found = Vec::new();
        for line in written.lines() {
            let (kind, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            found.push(match kind {
                "given" | "call" => {
                    reply = table.act(words.trim()).await;
                    line.to_owned()
                }
                "reply" => format!("reply  {reply}").trim_end().to_owned(),
                "keys" => format!("keys   {}", keys::shown(&table.queue, &mut table.redis).await),
                _ => line.to_owned(),
            });
        }
        found.join("\n")
    }

    async fn act(&mut self, words: &str) -> String {
        let mut words = words.split_whitespace();
        let verb = words.next().expect("a verb");
        let mut words: Vec<&str> = words.collect();
        if verb == "create" && words.first() == Some(&"internal") {
            words.remove(0);
            let name = format!("{INTERNAL_QUEUES}{}", self.queue.name());
            self.queue.shard = Shard::first(&QueueName::parse("queue", &name).expect("a name"));
        }
        let (queue, store) = (self.queue.clone(), self.store.clone());
        let shard = &queue.shard;
        match verb {
            "create" => self.queue_reply(store.create_queue(queue.name(), config(&words)).await),
            "update_queue" => self.queue_reply(store.update_queue(queue.name(), patch(&words)).await),
            "delete" => store.delete_queue(queue.name()).await.map_or_else(refused, |()| "gone".to_owned()),
            "pass" => {
                queue.clock.advance(number(words[0]));
                String::new()
            }
            "redis" => {
                let mut command = ::redis::cmd(words[0]);
                command.arg(format!("{}{}", keys::tag(queue.name()), words[1]));
                words[2..].iter().for_each(|word| {
                    command.arg(word.replace("\\0", "\0"));
                });
                command.query_async::<()>(&mut self.redis).await.expect("a raw command");
                String::new()
            }
            "enqueue" => {
                let messages: Vec<NewMessage> = words.iter().map(|word| new_message(word)).collect();
                let ids: Vec<String> = messages.iter().map(|message| message.id.to_string()).collect();
                let results = store.enqueue(shard, messages).await;
                each(&ids, results, |enqueued| format!("at {}", enqueued.enqueued_at_ms - self.started_ms))
            }
            "dequeue" => self.dequeue(&words).await,
            "complete" => {
                // a=text: with that as the result.
                let result_of = |word: &&str| word.split_once('=').map_or("", |(_, result)| result).to_owned();
                let results: Vec<String> = words.iter().map(result_of).collect();
                let words: Vec<&str> = words.iter().map(|word| word.split('=').next().unwrap_or(word)).collect();
                let completion = |(lease, result): (LeaseRef, String)| Completion { lease, result: result.into() };
                let completions = self.leases(&words).into_iter().zip(results).map(completion).collect();
                transitions(&words, store.complete(shard, completions).await)
            }
            "release" | "release_in" | "never_again" | "give_up" | "undelivered" => {
                // release_in 500 a b: after 500 ms; release a b: after the queue's backoff.
                let verdict = match verb {
                    "never_again" => Verdict::Error,
                    "give_up" => Verdict::Cancel,
                    "undelivered" => Verdict::Undelivered,
                    _ => Verdict::Retry,
                };
                let delay_ms = (verb == "release_in").then(|| number(words[0]));
                let words = &words[delay_ms.iter().len()..];
                let release = |lease| Release { lease, delay_ms, reason: "why".to_owned(), verdict };
                let releases = self.leases(words).into_iter().map(release).collect();
                transitions(words, store.release(shard, releases).await)
            }
            "cancel" | "force_cancel" => {
                let force = verb == "force_cancel";
                let cancel = |LeaseRef { id, fencing_token }| Cancellation {
                    id,
                    fencing_token,
                    force,
                    reason: "why".to_owned(),
                };
                let cancellations = self.leases(&words).into_iter().map(cancel).collect();
                transitions(&words, store.cancel(shard, cancellations).await)
            }
            "extend" => {
                let (lease_ms, request_id, words) = (number(words[0]), words[1].to_owned(), &words[2..]);
                let extend = |lease| Extension { lease, lease_ms: Some(lease_ms), request_id: request_id.clone() };
                let extensions = self.leases(words).into_iter().map(extend).collect();
                let results = store.extend_lease(shard, extensions).await;
                each(words, results, |extended| format!("until {}", extended.expires_at_ms - self.started_ms))
            }
            "redrive" => transitions(&words, store.redrive(shard, words.iter().map(|word| id(word)).collect()).await),
            "change_messages" => self.change_messages(&words).await,
            "update" => {
                let mut patch = MessagePatch::default();
                for word in &words[1..] {
                    match word.split_once('=').expect("name=value") {
                        ("priority", value) => patch.priority = Some(value.parse().expect("a priority")),
                        (_, value) => patch.visible_at_ms = Some(self.started_ms + number(value)),
                    }
                }
                transitions(
                    &words[..1],
                    store.update_message(shard, &id(words[0]), patch).await.map(|one| vec![Ok(one)]),
                )
            }
            "get" => {
                let ids = words.iter().map(|word| id(word)).collect();
                each(&words, store.get_messages(shard, ids).await, |message| self.message(&message))
            }
            "list" => {
                let page = store.list_messages(shard, state(words[0]), "", number(words[1]) as usize).await;
                let page = page.expect("a page");
                let ids: Vec<&str> = page.items.iter().map(|message| message.id.as_str()).collect();
                format!("{}{}", ids.join(" "), if page.next_cursor.is_empty() { "" } else { " …" })
            }
            "explain" => match store.explain(shard, &id(words[0])).await {
                Err(refusal) => refused(refusal),
                Ok(facts) => {
                    hindrances(&facts).into_iter().map(|hindrance| hindrance.text).collect::<Vec<_>>().join(" ")
                }
            },
            "depth" => match store.depth(shard, words.first().map(|word| origin(word)).as_ref()).await {
                Err(refusal) => refused(refusal),
                Ok(depth) => State::ALL.map(|state| format!("{state} {}", depth.of(state))).join(" "),
            },
            "ages" => match store.ages(shard).await {
                Ok(Ages { pending_ms, lease_ms }) => format!("pending {pending_ms:?} lease {lease_ms:?}"),
                Err(refusal) => refused(refusal),
            },
            "sweep" => {
                let swept = store.sweep(shard).await.expect("a sweep");
                let next = swept.next_ms.map_or("never".to_owned(), |at_ms| (at_ms - self.started_ms).to_string());
                let dropped = if swept.dropped > 0 { format!(" dropped {}", swept.dropped) } else { String::new() };
                format!(
                    "promoted {} expired {} collected {}{dropped} next {next}",
                    swept.promoted, swept.expired, swept.collected
                )
            }
            "purge" => {
                let purged = store.purge(shard, words.contains(&"running"), "").await.expect("a purge");
                format!("purged {}{}", purged.purged, if purged.next_cursor.is_empty() { "" } else { " …" })
            }
            "relay" => {
                let mut reader = store.outbox_reader();
                reader.watch(shard.clone()).await.expect("a shard");
                let read = reader.read(Duration::from_millis(1)).await.expect("a read");
                let all: HashSet<Shard> = [shard.clone()].into();
                for _ in 0..2 {
                    reader.ack(&all).await.expect("an acknowledgement, and one said again");
                }
                let left = store.outbox_lengths(&[shard]).await.expect("a length")[0];
                let left = left.map_or("no queue".to_owned(), |left| format!("left {left}"));
                format!("relayed {} lost {}, {left}", read.events.len(), reader.take_lost())
            }
            "check" => self.check().await,
            "acquire_leader_lease" => {
                let name = format!("{}{}", queue.name(), words[0]);
                let acquired = store.acquire_leader_lease(&name, words[1], number(words[2])).await;
                acquired.granted_by().map_or_else(refused, |partition| partition.is_some().to_string())
            }
            unknown => panic!("{unknown} is no verb"),
        }
    }

    async fn dequeue(&mut self, words: &[&str]) -> String {
        let mut wanted = request(number(words[0]) as usize);
        let mut ticket = None;
        for word in &words[1..] {
            match word.split_once('=').expect("name=value") {
                ("lease", value) => wanted.lease_ms = Some(number(value)),
                ("request", value) => wanted.request_id = value.to_owned(),
                // ticket=4: the first try; ticket=4-6: the try 6 of that ticket.
                ("ticket", value) => {
                    let (first, try_number) = value.split_once('-').unwrap_or((value, value));
                    ticket = Some(Ticket { server: 7, slot: 1, first: number(first), number: number(try_number) });
                }
                _ => wanted.filters.push(origin(word)),
            }
        }
        let answer = match ticket {
            None => self.queue.dequeue(vec![wanted]).await,
            Some(_) => self.store.dequeue(&self.queue.shard, &[wanted], false, ticket).await,
        };
        let answer = match answer {
            Err(refusal) => return refused(refusal),
            Ok(answer) => answer,
        };
        let leases = match &answer.leases[0] {
            Err(refusal) => return refused(refusal.clone()),
            Ok(leases) => leases,
        };
        let mut text: Vec<String> = Vec::new();
        for lease in leases {
            let fencing_tokens = self.fencing_tokens.entry(lease.id.to_string()).or_default();
            if !fencing_tokens.contains(&lease.fencing_token) {
                fencing_tokens.push(lease.fencing_token);
            }
            let until = lease.expires_at_ms - self.started_ms;
            text.push(format!("{} v{} attempt {} until {until}", lease.id, lease.version, lease.attempt));
        }
        let next = answer.outlook.next_due_ms.map_or("never".to_owned(), |at_ms| (at_ms - self.started_ms).to_string());
        text.push(format!("ready {} next {next}", answer.outlook.ready));
        text.join(", ")
    }

    /// Verb, state and the number of messages; then: priority=N of an update, dry, key=value, next (the page behind the
    /// last one).
    async fn change_messages(&mut self, words: &[&str]) -> String {
        let mut selection = Selection { states: [state(words[1])].into(), ..Selection::default() };
        let (mut patch, mut cursor, mut dry_run) = (MessagePatch::default(), String::new(), false);
        for word in &words[3..] {
            match word.split_once('=') {
                Some(("priority", value)) => patch.priority = Some(value.parse().expect("a priority")),
                Some(_) => selection.filter = Some(origin(word)),
                None if *word == "next" => cursor = self.cursor.clone(),
                None => dry_run = true,
            }
        }
        let change = match words[0] {
            "redrive" => Change::Redrive,
            "cancel" => Change::Cancel { reason: "why".to_owned() },
            _ => Change::Update(patch),
        };
        let request = ChangeRequest { selection, change, dry_run };
        let limit = number(words[2]) as usize;
        match self.store.change_messages(&self.queue.shard, &request, &cursor, limit).await {
            Err(refusal) => refused(refusal),
            Ok(page) => {
                let refusals: String =
                    page.refused.iter().map(|(id, refusal)| format!(", {id} {}", refusal.reason())).collect();
                let more = if page.next_cursor.is_empty() { "" } else { " …" };
                self.cursor = page.next_cursor;
                let (examined, matched, changed) = (page.examined, page.matched, page.changed);
                format!("examined {examined} matched {matched} changed {changed}{refusals}{more}")
            }
        }
    }

    async fn check(&self) -> String {
        let (mut violations, mut cursor) = (Vec::new(), String::new());
        loop {
            let (_, page) = self.store.check(&self.queue.shard, &cursor).await.expect("a step");
            for violation in page.items {
                let text = format!("{} {}", violation.invariant, violation.detail);
                if !violations.contains(&text) {
                    violations.push(text);
                }
            }
            cursor = page.next_cursor;
            if cursor.is_empty() {
                return if violations.is_empty() { "sound".to_owned() } else { violations.join("; ") };
            }
        }
    }

    /// `a`: by the token of a's last lease (0: it has none); `a#1`: of its first; `a#0`: by none.
    fn leases(&self, words: &[&str]) -> Vec<LeaseRef> {
        let lease = |word: &&str| {
            let (name, nth) =
                word.split_once('#').map_or((*word, None), |(name, nth)| (name, Some(number(nth) as usize)));
            let fencing_tokens = self.fencing_tokens.get(name).map(Vec::as_slice).unwrap_or_default();
            let fencing_token = match nth {
                None => fencing_tokens.last().copied().unwrap_or(0),
                Some(0) => 0,
                Some(nth) => fencing_tokens[nth - 1],
            };
            LeaseRef { id: id(name), fencing_token }
        };
        words.iter().map(lease).collect()
    }

    fn queue_reply(&self, reply: Result<Queue, Refusal>) -> String {
        reply.map_or_else(refused, |queue| format!("revision {}", queue.revision))
    }

    fn message(&self, message: &Message) -> String {
        let Message { state, version, attempts, priority, .. } = message;
        let result = String::from_utf8_lossy(&message.result);
        let result = if result.is_empty() { String::new() } else { format!(" result {result}") };
        let priority = match &message.priority_class {
            None => priority.to_string(),
            Some(class) => format!("{class} {}", priority - self.started_ms as i64),
        };
        format!(
            "{state} v{version} priority {priority} attempts {attempts} due {}{result}",
            message.due_ms.saturating_sub(self.started_ms)
        )
    }
}

fn each<N: AsRef<str>, T>(names: &[N], results: Items<T>, show: impl Fn(T) -> String) -> String {
    match results {
        Err(refusal) => refused(refusal),
        Ok(results) => {
            let one = |(name, result): (&N, Result<T, Refusal>)| {
                let name = name.as_ref().split('#').next().unwrap_or_default().to_owned();
                format!("{name} {}", result.map_or_else(refused, &show))
            };
            names.iter().zip(results).map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

fn transitions(names: &[&str], results: Items<Transition>) -> String {
    each(names, results, |went| format!("{} v{}", went.state, went.version))
}

fn refused(refusal: Refusal) -> String {
    match &refusal {
        Refusal::LeaseLost { state, .. } | Refusal::WrongState { state, .. } => {
            format!("{} ({state})", refusal.reason())
        }
        Refusal::Invalid { field, .. } => format!("{} ({field})", refusal.reason()),
        _ => refusal.reason().to_owned(),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn state(word: &str) -> State {
    State::ALL.into_iter().find(|state| state.name() == word).unwrap_or_else(|| panic!("{word} is no state"))
}

fn origin(word: &str) -> Filter {
    filter(&[word.split_once('=').expect("key=value")])
}

/// `[+]id@priority[/key[/origin]][~invisibility_ms][!max_attempts]`; + coalesces.
fn new_message(word: &str) -> NewMessage {
    let (word, attempts) = word.split_once('!').map_or((word, None), |(word, attempts)| (word, Some(attempts)));
    let (word, hidden) = word.split_once('~').map_or((word, None), |(word, hidden)| (word, Some(hidden)));
    let mut parts = word.trim_start_matches('+').split('/');
    let (name, priority) = parts.next().and_then(|part| part.split_once('@')).expect("id@priority");
    let pairs: Vec<(&str, &str)> = [KEY, "origin"].into_iter().zip(parts).collect();
    NewMessage {
        coalesce: word.starts_with('+'),
        invisibility_ms: hidden.map(number),
        max_attempts: attempts.map(|attempts| number(attempts) as u32),
        priority_class: priority.parse::<i64>().is_err().then(|| priority.to_owned()),
        ..tagged(name, priority.parse().unwrap_or(0), &pairs)
    }
}

fn config(words: &[&str]) -> QueueConfig {
    let first = if words.first() == Some(&"exclusive") { exclusive() } else { simple() };
    first.patched(&patch(&words[1..])).expect("a valid configuration")
}

fn patch(words: &[&str]) -> QueuePatch {
    let mut patch = QueuePatch::default();
    for word in words {
        match word.split_once('=').expect("name=value") {
            ("lease", value) => patch.lease_ms = Some(number(value)),
            ("attempts", value) => patch.max_attempts = Some(number(value) as u32),
            ("retention", value) => patch.terminal_retention_ms = Some(number(value)),
            ("errored_retention", value) => patch.errored_retention_ms = Some(number(value)),
            ("id_window", value) => patch.id_window_ms = Some(number(value)),
            ("errored", value) => patch.max_errored = Some(number(value)),
            ("depth", value) => patch.max_depth = Some(number(value)),
            ("shards", value) => patch.shards = Some(number(value) as u16),
            ("paused", value) => patch.dequeue_blocked = Some(value == "yes"),
            ("index", value) => patch.indexes = Some(vec![index(&value.split(',').collect::<Vec<_>>())]),
            ("class", value) => {
                let (name, offset_ms) = value.split_once(':').expect("name:offset_ms");
                let classes = patch.priority_classes.get_or_insert_default();
                classes.offsets_ms.insert(name.to_owned(), offset_ms.parse().expect("an offset"));
            }
            ("backoff", value) => {
                let base_ms = number(value);
                patch.retry_backoff =
                    Some(Backoff { kind: BackoffKind::Fixed, base_ms, max_ms: base_ms, jitter_percent: 0 });
            }
            (unknown, _) => panic!("{unknown} is no setting"),
        }
    }
    patch
}
