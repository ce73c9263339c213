//! Queues and their configuration: Q1, Q2.

use super::bring;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, missing, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q1_create_answers_the_queue_that_is_there,
    q1_every_verb_refuses_a_queue_that_is_not_there,
    q1_queues_are_listed_by_prefix_in_pages,
    q1_queues_know_nothing_of_each_other,
    q1_delete_refuses_live_messages_and_takes_terminal_ones,
    q1_a_deleted_queue_leaves_its_events,
    q1_a_deleted_queue_is_known_to_have_been_exclusive,
    q1_a_queue_created_again_with_another_type_has_it_on_every_server,
    q11_a_queue_created_again_never_repeats_a_token,
    q2_a_patch_changes_what_it_names,
    q2_every_bound_is_refused_by_its_field,
    q2_a_change_is_in_force_at_once_on_every_server,
    q2_a_change_of_a_default_reaches_messages_that_are_there,
    q2_blocked_enqueue_refuses_the_whole_call_and_nothing_else,
    q2_a_paused_queue_leases_nothing_and_does_the_rest,
);

async fn q1_create_answers_the_queue_that_is_there<S: Probe>(stage: &Stage<S>) {
    let name = stage.queue_name();
    let config = QueueConfig { indexes: vec![index(&["b"]), index(&["a"]), index(&["b"])], ..exclusive() };
    let made = stage.store.create_queue(&name, config.clone()).await.expect("a new queue");
    assert_eq!(made.config.indexes, [index(&["a"]), index(&["b"])], "sorted, each once");
    assert_eq!((&made.name, made.revision, made.created_at_ms), (&name, 1, stage.clock.now_ms()));
    stage.clock.advance(5);
    assert_eq!(stage.other.create_queue(&name, config).await, Ok(made.clone()));
    let exists = Err(Refusal::QueueExists { queue: name.to_string() });
    assert_eq!(stage.store.create_queue(&name, simple()).await, exists);
    assert_eq!(stage.other.create_queue(&name, exclusive()).await, exists);
    assert_eq!(stage.store.get_queue(&name).await, Ok(made));
}

async fn q1_every_verb_refuses_a_queue_that_is_not_there<S: Probe>(stage: &Stage<S>) {
    let name = stage.queue_name();
    let (store, shard) = (&stage.store, &Shard::first(&name));
    let lease = || lease_ref("m", 1);
    let extension = Extension { lease: lease(), lease_ms: None, request_id: String::new() };
    let release = Release { lease: lease(), delay_ms: None, reason: String::new(), verdict: Verdict::Retry };
    let cancellation = Cancellation { id: id("m"), fencing_token: 0, force: true, reason: String::new() };
    let refused = [
        ("update_queue", store.update_queue(&name, QueuePatch::default()).await.err()),
        ("get_queue", store.get_queue(&name).await.err()),
        ("delete_queue", store.delete_queue(&name).await.err()),
        ("purge", store.purge(shard, false, "").await.err()),
        ("enqueue", store.enqueue(shard, vec![message("m", 1)]).await.err()),
        ("dequeue", store.dequeue(shard, &[request(1)], false, None).await.err()),
        ("complete", store.complete(shard, vec![lease().into()]).await.err()),
        ("extend_lease", store.extend_lease(shard, vec![extension]).await.err()),
        ("release", store.release(shard, vec![release]).await.err()),
        ("cancel", store.cancel(shard, vec![cancellation]).await.err()),
        ("redrive", store.redrive(shard, vec![id("m")]).await.err()),
        ("update_message", store.update_message(shard, &id("m"), MessagePatch::default()).await.err()),
        ("get_messages", store.get_messages(shard, vec![id("m")]).await.err()),
        ("list_messages", store.list_messages(shard, State::Pending, "", 1).await.err()),
        ("explain", store.explain(shard, &id("m")).await.err()),
        ("depth", store.depth(shard, None).await.err()),
        ("depth by filter", store.depth(shard, Some(&filter(&[("k", "v")]))).await.err()),
        ("sweep", store.sweep(shard).await.err()),
        ("check", store.check(shard, "").await.err()),
    ];
    for (verb, refusal) in refused {
        assert_eq!(refusal, Some(Refusal::QueueNotFound { queue: name.to_string() }), "{verb}");
    }
}

async fn q1_a_deleted_queue_is_known_to_have_been_exclusive<S: Probe>(stage: &Stage<S>) {
    let name = stage.queue_name();
    assert_eq!(stage.other.was_exclusive(&name).await, Ok(false), "there was none");
    for (config, is_exclusive) in [(exclusive(), true), (simple(), false)] {
        stage.store.create_queue(&name, config).await.expect("a new queue");
        assert_eq!(stage.other.was_exclusive(&name).await, Ok(false), "it exists");
        stage.store.delete_queue(&name).await.expect("an empty queue");
        assert_eq!(stage.other.was_exclusive(&name).await, Ok(is_exclusive));
    }
}

async fn q1_queues_are_listed_by_prefix_in_pages<S: Probe>(stage: &Stage<S>) {
    let name = |end: &str| QueueName::parse("queue", &format!("{}{end}", stage.prefix)).expect("a name");
    for end in ["b/2", "a", "b/1", "b", "c", "b/3", "b/4"] {
        stage.store.create_queue(&name(end), simple()).await.expect("a new queue");
    }
    let list = async |prefix: &str, page_items: usize| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let prefix = format!("{}{prefix}", stage.prefix);
            let page = stage.other.list_queues(&prefix, &cursor, page_items).await.expect("a page");
            assert!(page.items.len() <= page_items);
            found.extend(page.items.iter().map(|queue| queue.name.as_str()[stage.prefix.len()..].to_owned()));
            if page.next_cursor.is_empty() {
                return found;
            }
            cursor = page.next_cursor;
        }
    };
    for page_items in [1, 2, 3, 100] {
        assert_eq!(list("", page_items).await, ["a", "b", "b/1", "b/2", "b/3", "b/4", "c"], "by {page_items}");
        assert_eq!(list("b/", page_items).await, ["b/1", "b/2", "b/3", "b/4"], "by {page_items}");
    }
    assert_eq!(list("none", 5).await, [""; 0]);
    stage.store.delete_queue(&name("b/2")).await.expect("an empty queue");
    assert_eq!(list("b/", 2).await, ["b/1", "b/3", "b/4"]);
}

async fn q1_queues_know_nothing_of_each_other<S: Probe>(stage: &Stage<S>) {
    let [one, two] = [stage.queue(exclusive()).await, stage.queue(exclusive()).await];
    let fencing_token = bring(&one, keyed("m", 1, "k"), State::Running).await;
    bring(&two, keyed("m", 2, "k"), State::Pending).await;
    assert_eq!(two.complete(lease_ref("m", fencing_token)).await, lost("m", State::Pending));
    assert_eq!(two.take_ids(9).await, ["m"], "its key is free here");
    one.purge(true).await;
    assert_eq!(two.state("m").await, State::Running);
}

async fn q1_delete_refuses_live_messages_and_takes_terminal_ones<S: Probe>(stage: &Stage<S>) {
    for state in State::ALL {
        let queue = stage.queue(exclusive()).await;
        bring(&queue, keyed("m", 1, "k"), state).await;
        queue.depth_of(&filter(&[(KEY, "k")])).await;
        let before = queue.snapshot().await;
        let deleted = stage.store.delete_queue(queue.name()).await;
        if state.is_live() {
            assert_eq!(deleted, Err(Refusal::QueueNotEmpty { queue: queue.name().to_string() }), "{state}");
            assert_eq!(queue.snapshot().await, before);
        } else {
            assert_eq!(deleted, Ok(()), "{state}");
            let gone = Refusal::QueueNotFound { queue: queue.name().to_string() };
            assert_eq!(queue.describe().await, Err(gone.clone()));
            assert_eq!(queue.through(&stage.other).try_get("m").await, Err(gone.clone()));
            assert_eq!(stage.store.delete_queue(queue.name()).await, Ok(()), "repeated");
            assert_eq!(stage.other.delete_queue(queue.name()).await, Ok(()), "repeated through another server");
            assert_eq!(queue.describe().await, Err(gone));
        }
    }
}

async fn q1_a_deleted_queue_leaves_its_events<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 1), State::Completed).await;
    let before = queue.events().await;
    assert_eq!(before.len(), 3);
    stage.store.delete_queue(queue.name()).await.expect("no live messages");
    let after = queue.events().await;
    assert_eq!(after[..3], before);
    assert_eq!(after[3..].iter().map(|event| (event.to, event.by)).collect::<Vec<_>>(), [(None, Cause::Collect)]);
}

/// The other server has seen the first queue of the name and must not act on what it remembers.
async fn q1_a_queue_created_again_with_another_type_has_it_on_every_server<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let other = queue.through(&stage.other);
    bring(&other, message("m", 1), State::Canceled).await;
    stage.store.delete_queue(queue.name()).await.expect("no live messages");
    stage.clock.advance(1);
    let config = QueueConfig { lease_ms: 7_000, ..exclusive() };
    let created = stage.store.create_queue(queue.name(), config).await.expect("a new queue");
    assert_eq!(created.revision, 1);
    assert_eq!(other.try_get("m").await, missing("m"));
    let refused = other.try_put(tagged("m", 1, &[("other", "x")])).await;
    assert!(matches!(refused, Err(Refusal::Invalid { field: "metadata", .. })), "{refused:?}");
    other.put([keyed("a", 1, "k"), keyed("b", 2, "k")]).await;
    let leases = other.take(9).await;
    assert_eq!(leases.len(), 1, "one of a key at a time");
    assert_eq!(leases[0].expires_at_ms, stage.clock.now_ms() + 7_000);
    assert_eq!(other.describe().await.map(|queue| queue.created_at_ms), Ok(created.created_at_ms));
    other.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
}

async fn q11_a_queue_created_again_never_repeats_a_token<S: Probe>(stage: &Stage<S>) {
    let name = stage.queue_name();
    let queue = TestQueue { store: stage.store.clone(), clock: stage.clock.clone(), shard: Shard::first(&name) };
    let mut last = 0;
    for _ in 0..5 {
        stage.store.create_queue(&name, simple()).await.expect("a new queue");
        let fencing_token = bring(&queue, message("m", 1), State::Completed).await;
        assert!(fencing_token > last, "{fencing_token} after {last}");
        last = fencing_token;
        stage.store.delete_queue(&name).await.expect("no live messages");
        stage.clock.advance(1);
    }
}

async fn q2_a_patch_changes_what_it_names<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let patch = QueuePatch {
        lease_ms: Some(5_000),
        max_depth: Some(9),
        indexes: Some(vec![index(&["b", "a"]), index(&["a"]), index(&["a", "b"])]),
        ..QueuePatch::default()
    };
    let config =
        QueueConfig { lease_ms: 5_000, max_depth: 9, indexes: vec![index(&["a"]), index(&["a", "b"])], ..exclusive() };
    assert_eq!(queue.reconfigure(patch.clone()).await.config, config);
    let stands = queue.describe().await.expect("a queue");
    assert_eq!(stands.config, config);
    assert!(stands.revision > 1);
    assert_eq!(queue.reconfigure(patch).await.revision, stands.revision, "what changes nothing writes nothing");
    assert_eq!(queue.reconfigure(QueuePatch::default()).await, stands);
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 10, max_ms: 10, jitter_percent: 3 };
    let classes = PriorityClasses { offsets_ms: [("bulk".to_owned(), 7)].into(), override_key: "tier".to_owned() };
    let patch = QueuePatch {
        lease_ms: None,
        invisibility_ms: Some(1),
        max_attempts: Some(2),
        enqueue_blocked: Some(true),
        dequeue_blocked: Some(true),
        terminal_retention_ms: Some(3),
        errored_retention_ms: Some(4),
        max_errored: Some(5),
        max_errored_bytes: Some(6),
        id_window_ms: Some(7),
        shards: None,
        retry_backoff: Some(backoff),
        max_depth: Some(0),
        indexes: Some(vec![]),
        priority_classes: Some(classes.clone()),
    };
    let config = QueueConfig {
        lease_ms: 5_000,
        priority_classes: classes,
        invisibility_ms: 1,
        max_attempts: 2,
        enqueue_blocked: true,
        dequeue_blocked: true,
        terminal_retention_ms: 3,
        errored_retention_ms: 4,
        max_errored: 5,
        max_errored_bytes: 6,
        id_window_ms: 7,
        retry_backoff: backoff,
        ..exclusive()
    };
    assert_eq!(queue.reconfigure(patch).await.config, config);
    assert_eq!(queue.through(&stage.other).describe().await.expect("a queue").config, config);
}

async fn q2_every_bound_is_refused_by_its_field<S: Probe>(stage: &Stage<S>) {
    type Edit = fn(&mut QueuePatch);
    fn backoff(kind: BackoffKind, base_ms: u64, max_ms: u64, jitter_percent: u8) -> Option<Backoff> {
        Some(Backoff { kind, base_ms, max_ms, jitter_percent })
    }
    const BAD: &[(&str, Edit)] = &[
        ("lease_ms", |patch| patch.lease_ms = Some(LEASE_MS_MIN - 1)),
        ("lease_ms", |patch| patch.lease_ms = Some(LEASE_MS_MAX + 1)),
        ("lease_ms", |patch| patch.lease_ms = Some(u64::MAX)),
        ("invisibility_ms", |patch| patch.invisibility_ms = Some(DELAY_MS_MAX + 1)),
        ("max_attempts", |patch| patch.max_attempts = Some(0)),
        ("max_attempts", |patch| patch.max_attempts = Some(ATTEMPTS_MAX + 1)),
        ("terminal_retention_ms", |patch| patch.terminal_retention_ms = Some(DELAY_MS_MAX + 1)),
        ("errored_retention_ms", |patch| patch.errored_retention_ms = Some(DELAY_MS_MAX + 1)),
        ("max_errored", |patch| patch.max_errored = Some(0)),
        ("max_errored", |patch| patch.max_errored = Some(DEPTH_MAX + 1)),
        ("max_errored_bytes", |patch| patch.max_errored_bytes = Some(0)),
        ("id_window_ms", |patch| patch.id_window_ms = Some(DELAY_MS_MAX + 1)),
        ("max_errored_bytes", |patch| patch.max_errored_bytes = Some(ERRORED_BYTES_MAX + 1)),
        ("max_depth", |patch| patch.max_depth = Some(DEPTH_MAX + 1)),
        ("retry_backoff.base_ms", |patch| patch.retry_backoff = backoff(BackoffKind::Fixed, 0, 5, 0)),
        ("retry_backoff.max_ms", |patch| patch.retry_backoff = backoff(BackoffKind::Exponential, 5, 4, 0)),
        ("retry_backoff.jitter_percent", |patch| patch.retry_backoff = backoff(BackoffKind::None, 0, 0, 101)),
        ("indexes", |patch| {
            patch.indexes = Some((0..=INDEXES_MAX).map(|n| index(&[&format!("k{n}")])).collect());
        }),
    ];
    let queue = stage.queue(simple()).await;
    let before = queue.snapshot().await;
    for (field, edit) in BAD {
        let mut patch = QueuePatch { enqueue_blocked: Some(true), ..QueuePatch::default() };
        edit(&mut patch);
        let refused = stage.store.update_queue(queue.name(), patch).await;
        assert!(matches!(&refused, Err(Refusal::Invalid { field: at, .. }) if at == field), "{field}: {refused:?}");
    }
    assert_eq!(queue.snapshot().await, before);
    let nameless = QueueConfig { queue_type: QueueType::Exclusive { key: String::new() }, ..simple() };
    let name = stage.queue_name();
    for (field, config) in [
        ("exclusivity_key", nameless),
        ("shards", QueueConfig { shards: 0, ..simple() }),
        ("shards", QueueConfig { shards: SHARDS_MAX + 1, ..simple() }),
        ("lease_ms", QueueConfig { lease_ms: 0, ..simple() }),
    ] {
        let refused = stage.store.create_queue(&name, config).await;
        assert!(matches!(&refused, Err(Refusal::Invalid { field: at, .. }) if *at == field), "{field}: {refused:?}");
    }
    assert_eq!(stage.store.get_queue(&name).await, Err(Refusal::QueueNotFound { queue: name.to_string() }));
}

async fn q2_a_change_is_in_force_at_once_on_every_server<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let other = queue.through(&stage.other);
    // The other server has used the queue and caches its first configuration.
    bring(&other, message("first", 0), State::Completed).await;
    let name = queue.name().to_string();
    let set = async |edit: fn(&mut QueuePatch)| {
        let mut patch = QueuePatch::default();
        edit(&mut patch);
        queue.reconfigure(patch).await
    };
    other.put([message("a", 1)]).await;
    set(|patch| patch.lease_ms = Some(9_000)).await;
    let lease = other.take_one().await;
    assert_eq!(lease.expires_at_ms, stage.clock.now_ms() + 9_000);
    set(|patch| patch.dequeue_blocked = Some(true)).await;
    assert_eq!(other.try_take(request(1)).await, Err(Refusal::DequeueBlocked { queue: name.clone() }));
    set(|patch| patch.dequeue_blocked = Some(false)).await;
    set(|patch| patch.enqueue_blocked = Some(true)).await;
    assert_eq!(other.try_put(message("b", 1)).await, Err(Refusal::EnqueueBlocked { queue: name.clone() }));
    set(|patch| patch.enqueue_blocked = Some(false)).await;
    set(|patch| patch.max_depth = Some(1)).await;
    assert_eq!(other.try_put(message("b", 1)).await, Err(Refusal::QueueFull { queue: name.clone(), max_depth: 1 }));
    set(|patch| patch.max_depth = Some(0)).await;
    set(|patch| patch.invisibility_ms = Some(50)).await;
    other.put([message("b", 1)]).await;
    assert_eq!(other.get("b").await.due_ms, stage.clock.now_ms() + 50);
    set(|patch| {
        let fixed = Backoff { kind: BackoffKind::Fixed, base_ms: 70, max_ms: 70, jitter_percent: 0 };
        patch.retry_backoff = Some(fixed);
    })
    .await;
    other.release(to(&lease), None, "").await.expect("a live lease");
    assert_eq!(other.get("a").await.due_ms, stage.clock.now_ms() + 70);
    set(|patch| patch.terminal_retention_ms = Some(0)).await;
    assert_eq!(other.sweep().await.collected, 1, "the first message");
}

async fn q2_a_change_of_a_default_reaches_messages_that_are_there<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let own = NewMessage { max_attempts: Some(2), lease_ms: Some(4_000), ..message("own", 2) };
    queue.put([message("default", 1), own]).await;
    let patch = QueuePatch { max_attempts: Some(1), lease_ms: Some(3_000), ..QueuePatch::default() };
    queue.reconfigure(patch).await;
    let leases = queue.take(2).await;
    let seen = |lease: &Lease| (lease.max_attempts, lease.expires_at_ms - lease.leased_at_ms);
    assert_eq!(leases.iter().map(seen).collect::<Vec<_>>(), [(1, 3_000), (2, 4_000)]);
    for (lease, state) in leases.iter().zip([State::Errored, State::Pending]) {
        assert_eq!(queue.release(to(lease), None, "").await.map(|end| end.state), Ok(state));
    }
}

async fn q2_blocked_enqueue_refuses_the_whole_call_and_nothing_else<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let running = bring(&queue, message("a", 1), State::Running).await;
    queue.put([message("b", 2)]).await;
    queue.reconfigure(QueuePatch { enqueue_blocked: Some(true), ..QueuePatch::default() }).await;
    let before = queue.snapshot().await;
    let coalescing = NewMessage { coalesce: true, ..message("b", 1) };
    for message in [message("new", 1), message("b", 2), coalescing] {
        let blocked = Err(Refusal::EnqueueBlocked { queue: queue.name().to_string() });
        assert_eq!(queue.store.enqueue(&queue.shard, vec![message]).await, blocked);
    }
    assert_eq!(queue.snapshot().await, before);
    queue.complete(lease_ref("a", running)).await.expect("a live lease");
    assert_eq!(queue.take_ids(2).await, ["b"]);
}

async fn q2_a_paused_queue_leases_nothing_and_does_the_rest<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let running = bring(&queue, message("a", 1), State::Running).await;
    queue.put([message("b", 2)]).await;
    queue.reconfigure(QueuePatch { dequeue_blocked: Some(true), ..QueuePatch::default() }).await;
    let before = queue.snapshot().await;
    let paused = Refusal::DequeueBlocked { queue: queue.name().to_string() };
    assert_eq!(queue.try_take(request(1)).await, Err(paused));
    assert_eq!(queue.snapshot().await, before);
    queue.put([message("c", 3)]).await;
    queue.extend(lease_ref("a", running), None, "").await.expect("a live lease");
    queue.complete(lease_ref("a", running)).await.expect("a live lease");
    queue.cancel(no_lease("b"), "").await.expect("a pending message");
    queue.reconfigure(QueuePatch { dequeue_blocked: Some(false), ..QueuePatch::default() }).await;
    assert_eq!(queue.take_ids(2).await, ["c"]);
}
