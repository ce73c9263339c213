//! Enqueue: what is kept, in which order it runs, what a repetition answers: Q3, Q10, and what is refused.

use super::{bound_for, bring};
use bytes::Bytes;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, no_lease};
use tallystone_tests::*;

over_each_store!(
    q3_a_message_is_kept_as_it_was_sent,
    q3_the_whole_range_of_priorities_sorts_exactly,
    q3_equal_priorities_run_in_order_of_arrival,
    q3_own_settings_go_before_the_queues,
    q4_a_message_without_the_exclusivity_key_is_refused_alone,
    q10_a_repeated_enqueue_answers_the_first_result_in_every_state,
    q10_the_same_id_with_other_content_is_refused_in_every_state,
    q10_content_is_what_was_sent_not_what_became_of_it,
    q10_a_batch_acts_in_order_and_one_bad_item_spoils_no_other,
    q10_an_id_is_free_again_after_collection,
    q2_a_full_queue_takes_what_it_knows_and_nothing_new,
    q3_a_full_batch_is_taken,
    o2_the_trace_context_is_not_content,
);

/// The message as it stands when it was just accepted, without invisibility.
fn accepted(message: &NewMessage, at_ms: u64) -> Message {
    Message {
        id: message.id.clone(),
        state: State::Pending,
        version: 1,
        payload: message.payload.clone(),
        priority: message.priority,
        priority_class: None,
        metadata: message.metadata.clone(),
        lease_ms: message.lease_ms,
        invisibility_ms: message.invisibility_ms,
        max_attempts: message.max_attempts.unwrap_or(5),
        attempts: 0,
        enqueued_at_ms: at_ms,
        state_since_ms: at_ms,
        due_ms: 0,
        fencing_token: 0,
        worker: String::new(),
        reason: String::new(),
        coalesced: false,
        result: bytes::Bytes::new(),
        last_attempts: Vec::new(),
    }
}

async fn q3_a_message_is_kept_as_it_was_sent<S: Probe>(stage: &Stage<S>) {
    let bytes: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|n| n as u8).collect();
    let long =
        |n: usize| (format!("{n}{}", "k".repeat(METADATA_KEY_BYTES_MAX - 1)), "v".repeat(METADATA_VALUE_BYTES_MAX));
    let full = NewMessage {
        payload: Bytes::from(bytes),
        metadata: Metadata::parse((0..METADATA_PAIRS_MAX).map(long).collect()).expect("at every bound"),
        lease_ms: Some(LEASE_MS_MAX),
        invisibility_ms: Some(0),
        max_attempts: Some(ATTEMPTS_MAX),
        ..message(&"i".repeat(MESSAGE_ID_BYTES_MAX), -3)
    };
    let messages = [
        full,
        message("x", 0),
        NewMessage { payload: Bytes::from_static(b"\0\r\n\xff"), ..message("2013-01-01T10:15:00Z/UA1545/EWR", 1) },
        message("0190163d-8694-739b-aea5-966c26f8ad91", 2),
        message("0190163D-8694-739B-AEA5-966C26F8AD91", 3),
        tagged("ü/漢字 1", 4, &[("schlüssel", "wert ✈")]),
    ];
    let queue = stage.queue(simple()).await;
    let at_ms = stage.clock.now_ms();
    let enqueued = queue.put(messages.clone()).await;
    for (message, enqueued) in messages.iter().zip(enqueued) {
        assert_eq!((&enqueued.id, enqueued.enqueued_at_ms), (&message.id, at_ms));
        assert_eq!(queue.get(message.id.as_str()).await, accepted(message, at_ms));
    }
    let leases = queue.take(9).await;
    assert_eq!(leases.len(), messages.len());
    for (message, lease) in messages.iter().zip(leases) {
        assert_eq!((&lease.id, &lease.payload, lease.priority), (&message.id, &message.payload, message.priority));
        assert_eq!((&lease.metadata, lease.attempt, lease.version), (&message.metadata, 1, 2));
        assert_eq!(lease.max_attempts, message.max_attempts.unwrap_or(5));
        assert_eq!((lease.enqueued_at_ms, lease.leased_at_ms), (at_ms, at_ms));
    }
}

async fn q3_the_whole_range_of_priorities_sorts_exactly<S: Probe>(stage: &Stage<S>) {
    // Past 2^53 a double knows only every other number.
    const PAST: i64 = (1 << 53) + 1;
    const ORDER: [i64; 13] = [
        i64::MIN,
        i64::MIN + 1,
        -PAST - 1,
        -PAST,
        1 - PAST,
        -1,
        0,
        1,
        PAST - 1,
        PAST,
        PAST + 1,
        i64::MAX - 1,
        i64::MAX,
    ];
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        for at in [7, 2, 12, 0, 9, 4, 11, 5, 1, 10, 3, 8, 6] {
            queue.put([keyed(&format!("m{at}"), ORDER[at], &format!("k{at}"))]).await;
        }
        assert_eq!(queue.list_by(State::Pending, 5).await.iter().map(|m| m.priority).collect::<Vec<_>>(), ORDER);
        assert_eq!(queue.take(20).await.iter().map(|lease| lease.priority).collect::<Vec<_>>(), ORDER);
    }
    // The same behind one key, where the backlog has to sort, and through a filter.
    let queue = stage.queue(exclusive()).await;
    for at in [7, 2, 12, 0, 9, 4, 11, 5, 1, 10, 3, 8, 6] {
        queue.put([keyed(&format!("m{at:02}"), ORDER[at], "k")]).await;
    }
    for (at, priority) in ORDER.into_iter().enumerate() {
        let filters = if at % 2 == 0 { vec![] } else { vec![filter(&[(KEY, "k")])] };
        let lease = queue.try_take(DequeueRequest { filters, ..request(1) }).await.expect("a queue").remove(0);
        assert_eq!(lease.priority, priority);
        queue.complete(lease_ref(lease.id.as_str(), lease.fencing_token)).await.expect("a live lease");
    }
}

async fn q3_equal_priorities_run_in_order_of_arrival<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        // Names against the order of arrival.
        for batch in [["z", "q"], ["y", "b"], ["x", "a"]] {
            queue.put(batch.map(|id| keyed(id, 7, &format!("key of {id}")))).await;
        }
        let lease = queue.take_one().await;
        assert_eq!(lease.id, id("z"));
        queue.release(lease_ref("z", lease.fencing_token), Some(0), "").await.expect("a live lease");
        assert_eq!(queue.take_ids(9).await, ["z", "q", "y", "b", "x", "a"], "z has kept its place");
    }
}

async fn q3_own_settings_go_before_the_queues<S: Probe>(stage: &Stage<S>) {
    let config = QueueConfig { lease_ms: 10_000, invisibility_ms: 500, max_attempts: 1, ..simple() };
    let queue = stage.queue(config).await;
    let own =
        NewMessage { lease_ms: Some(20_000), invisibility_ms: Some(0), max_attempts: Some(2), ..message("own", 1) };
    let later = NewMessage { invisibility_ms: Some(700), ..message("later", 3) };
    queue.put([own, message("default", 2), later]).await;
    let seen = async |id: &str| {
        let message = queue.get(id).await;
        (message.state, message.due_ms.saturating_sub(stage.clock.now_ms()), message.max_attempts)
    };
    assert_eq!(seen("own").await, (State::Pending, 0, 2));
    assert_eq!(seen("default").await, (State::Invisible, 500, 1));
    assert_eq!(seen("later").await, (State::Invisible, 700, 1));
    stage.clock.advance(700);
    let long: Vec<u64> = queue.take(3).await.iter().map(|lease| lease.expires_at_ms - lease.leased_at_ms).collect();
    assert_eq!(long, [20_000, 10_000, 10_000], "the request's own length goes before these: see q8");
}

async fn q4_a_message_without_the_exclusivity_key_is_refused_alone<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let lacks = |id: &str| tagged(id, 1, &[("other", "k")]);
    let batch = vec![keyed("a", 1, "k"), lacks("b"), keyed("c", 2, "k"), message("d", 1)];
    let results = queue.store.enqueue(&queue.shard, batch).await.expect("an open queue");
    let refused: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, false, true]);
    for refusal in results.into_iter().filter_map(Result::err) {
        assert!(matches!(&refusal, Refusal::Invalid { field: "metadata", why } if why.contains(KEY)), "{refusal:?}");
    }
    assert_eq!(queue.depth().await, Depth { pending: 2, ..Depth::default() });
    let all_refused = queue.store.enqueue(&queue.shard, vec![lacks("e")]).await.expect("an open queue");
    assert!(all_refused[0].is_err());
}

async fn q10_a_repeated_enqueue_answers_the_first_result_in_every_state<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        for state in State::ALL {
            let queue = stage.queue(config.clone()).await;
            let first_ms = stage.clock.now_ms();
            let message = tagged("m", 1, &[(KEY, "k"), ("other", "o")]);
            bring(&queue, message.clone(), state).await;
            let before = queue.snapshot().await;
            stage.clock.advance(10);
            let again = queue.through(&stage.other).try_put(bound_for(message, state)).await;
            assert_eq!(again.map(|enqueued| enqueued.enqueued_at_ms), Ok(first_ms), "{state}");
            assert_eq!(queue.snapshot().await, before, "{state}");
        }
    }
}

async fn q10_the_same_id_with_other_content_is_refused_in_every_state<S: Probe>(stage: &Stage<S>) {
    type Edit = fn(&mut NewMessage);
    const OTHERS: &[Edit] = &[
        |message| message.payload = Bytes::from_static(b"other"),
        |message| message.payload = Bytes::new(),
        |message| message.priority += 1,
        |message| message.metadata = Metadata::parse([(KEY.to_owned(), "k".to_owned())].into()).expect("a pair"),
        |message| message.lease_ms = Some(message.lease_ms.map_or(1_000, |lease_ms| lease_ms + 1)),
        |message| message.lease_ms = None,
        |message| message.invisibility_ms = Some(message.invisibility_ms.map_or(0, |ms| ms + 1)),
        |message| message.max_attempts = Some(message.max_attempts.map_or(5, |attempts| attempts + 1)),
    ];
    for state in State::ALL {
        let queue = stage.queue(simple()).await;
        let sent = NewMessage {
            payload: Bytes::from_static(b"payload"),
            lease_ms: Some(30_000),
            ..tagged("m", 1, &[(KEY, "k"), ("other", "o")])
        };
        bring(&queue, sent.clone(), state).await;
        let before = queue.snapshot().await;
        for (at, edit) in OTHERS.iter().enumerate() {
            let mut other = bound_for(sent.clone(), state);
            edit(&mut other);
            let conflict = Err(Refusal::IdConflict { id: "m".to_owned() });
            assert_eq!(queue.try_put(other).await, conflict, "{state}, edit {at}");
        }
        assert_eq!(queue.snapshot().await, before, "{state}");
    }
}

async fn q10_content_is_what_was_sent_not_what_became_of_it<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("m", 5)]).await;
    queue.reprioritize("m", 3).await.expect("a pending message");
    assert!(queue.try_put(message("m", 5)).await.is_ok());
    assert_eq!(queue.try_put(message("m", 3)).await, Err(Refusal::IdConflict { id: "m".to_owned() }));
    assert_eq!(queue.get("m").await.priority, 3);
}

async fn q10_a_batch_acts_in_order_and_one_bad_item_spoils_no_other<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let later = NewMessage { invisibility_ms: Some(100), ..keyed("later", 0, "k") };
    let batch = vec![
        keyed("a", 5, "k"),
        keyed("a", 5, "k"),
        keyed("a", 4, "k"),
        later.clone(),
        keyed("b", 4, "k"),
        later,
        NewMessage { coalesce: true, ..keyed("a", 3, "k") },
        keyed("c", 4, "other"),
        keyed("b", 4, "other"),
    ];
    let results = queue.store.enqueue(&queue.shard, batch).await.expect("an open queue");
    let conflict = |result: &Result<_, Refusal>| matches!(result, Err(Refusal::IdConflict { .. }));
    assert_eq!(
        results.iter().map(conflict).collect::<Vec<_>>(),
        [false, false, true, false, false, false, false, false, true]
    );
    assert_eq!(queue.list(State::Pending).await, ["a", "c", "b"]);
    assert_eq!(queue.take_ids(9).await, ["a", "c"]);
}

async fn q10_an_id_is_free_again_after_collection<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 1), State::Canceled).await;
    assert_eq!(queue.pass(600_000).await.collected, 1);
    let enqueued = queue.try_put(message("m", 2)).await.expect("a free id");
    assert_eq!(enqueued.enqueued_at_ms, stage.clock.now_ms());
    assert_eq!(queue.get("m").await, accepted(&message("m", 2), stage.clock.now_ms()));
}

async fn q2_a_full_queue_takes_what_it_knows_and_nothing_new<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_depth: 3, ..simple() }).await;
    let full = |_: &str| Refusal::QueueFull { queue: queue.name().to_string(), max_depth: 3 };
    bring(&queue, message("running", 0), State::Running).await;
    bring(&queue, message("invisible", 0), State::Invisible).await;
    let batch = vec![message("a", 1), message("b", 1), message("a", 1)];
    let results = queue.store.enqueue(&queue.shard, batch).await.expect("an open queue");
    assert_eq!((results[0].is_ok(), &results[1], results[2].is_ok()), (true, &Err(full("b")), true));
    let before = queue.snapshot().await;
    assert_eq!(queue.try_put(message("b", 1)).await, Err(full("b")));
    assert!(queue.try_put(message("a", 1)).await.is_ok());
    assert!(queue.try_put(NewMessage { coalesce: true, ..message("a", 1) }).await.is_ok());
    assert_eq!(queue.snapshot().await, before);
    queue.cancel(no_lease("a"), "").await.expect("a pending message");
    queue.put([message("b", 1)]).await;
    assert_eq!(queue.redrive("a").await, Err(full("a")));
    // Made smaller than what is there, it takes nothing until enough has gone.
    queue.reconfigure(QueuePatch { max_depth: Some(2), ..QueuePatch::default() }).await;
    queue.cancel(no_lease("b"), "").await.expect("a pending message");
    assert!(queue.try_put(message("c", 1)).await.is_err());
    queue.cancel(no_lease("invisible"), "").await.expect("an invisible message");
    assert!(queue.try_put(message("c", 1)).await.is_ok());
}

async fn q3_a_full_batch_is_taken<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let batch = (0..BATCH_ITEMS_MAX).rev().map(|n| keyed(&format!("{n:04}"), n as i64, &format!("k{n}")));
        queue.put(batch).await;
        let ids = queue.take_ids(BATCH_ITEMS_MAX).await;
        assert_eq!(ids.len(), BATCH_ITEMS_MAX);
        assert!(ids.is_sorted());
    }
}

/// A producer that repeats an Enqueue may be in another trace. Other metadata, and the exclusivity value, are content.
async fn o2_the_trace_context_is_not_content<S: Probe>(stage: &Stage<S>) {
    let plain = &[("k", "v"), ("z", "1")][..];
    let traced = &[("k", "v"), ("traceparent", "a"), ("tracestate", "b"), ("z", "1")];
    let other = &[("k", "v"), ("traceparent", "c"), ("z", "1")];
    let only_trace = &[("traceparent", "a")];
    let by = |key: &str| QueueType::Exclusive { key: key.to_owned() };
    for (queue_type, cases) in [
        (
            QueueType::Simple,
            &[(plain, plain), (plain, traced), (traced, other), (traced, plain), (&[], only_trace)][..],
        ),
        (by("k"), &[(plain, traced), (traced, other), (traced, plain)]),
    ] {
        for (case, (first, again)) in cases.iter().enumerate() {
            let windowed = QueueConfig { terminal_retention_ms: 1_000, id_window_ms: 9_000, ..simple() };
            let queue = stage.queue(QueueConfig { queue_type: queue_type.clone(), ..windowed }).await;
            let accepted = queue.put([tagged("m", 1, first)]).await.remove(0);
            let changed = [*again, &[("y", "1")][..]].concat();
            let repeat = async |pairs: &[(&str, &str)]| {
                let answer = queue.try_put(tagged("m", 1, pairs)).await;
                answer.map(|enqueued| enqueued.enqueued_at_ms)
            };
            let conflict = Err(Refusal::IdConflict { id: "m".to_owned() });
            assert_eq!(repeat(again).await, Ok(accepted.enqueued_at_ms), "case {case} of {queue_type:?}");
            assert_eq!(queue.get("m").await.metadata, tagged("m", 1, first).metadata, "the first stays");
            let changed = &changed[changed.len().saturating_sub(METADATA_PAIRS_MAX)..];
            if queue_type == QueueType::Simple {
                assert_eq!(repeat(changed).await, conflict, "case {case}");
            }
            queue.cancel(no_lease("m"), "").await.expect("a pending message");
            queue.pass(1_000).await;
            assert_eq!(repeat(again).await, Ok(accepted.enqueued_at_ms), "remembered: case {case} of {queue_type:?}");
            if queue_type == QueueType::Simple {
                assert_eq!(repeat(changed).await, conflict, "remembered: case {case}");
            }
        }
    }
    let queue = stage.queue(QueueConfig { queue_type: by("traceparent"), ..simple() }).await;
    queue.put([tagged("m", 1, &[("traceparent", "a")])]).await;
    let refused = queue.try_put(tagged("m", 1, &[("traceparent", "b")])).await;
    assert_eq!(refused, Err(Refusal::IdConflict { id: "m".to_owned() }));
}
