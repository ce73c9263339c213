//! What only reads: GetMessage, ListMessages, Explain, Depth: Q5, Q7, Q9.

use super::bring;
use tallystone_model::explain::{Facts, HindranceKind, Holder};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, missing, no_lease, sorted, to};
use tallystone_tests::*;

over_each_store!(
    q7_a_message_in_each_state_shows_all_that_is_known,
    q7_get_answers_each_of_many,
    q7_list_pages_through_every_state,
    q7_pending_messages_are_listed_runnable_first,
    q7_lists_go_by_time,
    q7_a_page_token_of_nobodys_is_refused,
    q7_explain_gathers_the_facts_of_each_state,
    q7_explain_names_what_is_in_the_way,
    q7_explain_counts_those_ahead,
    q9_depth_counts_every_state,
);

async fn q7_a_message_in_each_state_shows_all_that_is_known<S: Probe>(stage: &Stage<S>) {
    for state in State::ALL {
        let config = QueueConfig { terminal_retention_ms: 7_000, errored_retention_ms: 9_000, ..simple() };
        let queue = stage.queue(config).await;
        let enqueued_at_ms = stage.clock.now_ms();
        let fencing_token = bring(&queue, message("m", 5), state).await;
        let (due_ms, version, reason) = match state {
            State::Invisible => (enqueued_at_ms + 60_000, 1, ""),
            State::Pending => (0, 1, ""),
            State::Running => (enqueued_at_ms + 30_000, 2, ""),
            State::Completed => (enqueued_at_ms + 7_000, 3, ""),
            State::Canceled => (enqueued_at_ms + 7_000, 2, "unwanted"),
            State::Errored => (enqueued_at_ms + 9_000, 3, "broken"),
        };
        let has_run = fencing_token != 0;
        let expected = Message {
            id: id("m"),
            state,
            version,
            payload: bytes::Bytes::new(),
            priority: 5,
            priority_class: None,
            metadata: Metadata::default(),
            lease_ms: None,
            invisibility_ms: (state == State::Invisible).then_some(60_000),
            max_attempts: if state == State::Errored { 1 } else { 5 },
            attempts: u32::from(has_run),
            enqueued_at_ms,
            state_since_ms: enqueued_at_ms,
            due_ms,
            fencing_token,
            worker: if has_run { "w".to_owned() } else { String::new() },
            reason: reason.to_owned(),
            coalesced: false,
            result: bytes::Bytes::new(),
            last_attempts: Vec::new(),
        };
        assert_eq!(Message { last_attempts: Vec::new(), ..queue.get("m").await }, expected);
        assert_eq!(queue.list_by(state, 9).await, std::slice::from_ref(&expected));
        assert_eq!(queue.facts("m").await.message, expected);
    }
}

async fn q7_get_answers_each_of_many<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("a", 1), message("b", 2)]).await;
    queue.take(1).await;
    let ids = ["b", "none", "a", "b"].map(id).to_vec();
    let found = queue.store.get_messages(&queue.shard, ids).await.expect("a queue");
    let seen: Vec<_> =
        found.into_iter().map(|found| found.map(|message| (message.id.to_string(), message.state))).collect();
    let b = || Ok(("b".to_owned(), State::Pending));
    assert_eq!(seen, [b(), missing("none"), Ok(("a".to_owned(), State::Running)), b()]);
}

async fn q7_list_pages_through_every_state<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        for state in State::ALL {
            let queue = stage.queue(config.clone()).await;
            for n in 0..7 {
                stage.clock.advance(3);
                let key = if state == State::Pending { n % 3 } else { n };
                bring(&queue, keyed(&format!("m{n}"), -n, &format!("k{key}")), state).await;
            }
            for other in State::ALL.into_iter().filter(|other| *other != state) {
                bring(&queue, keyed(other.name(), -100 - other as i64, other.name()), other).await;
            }
            let all = queue.list_by(state, 100).await;
            assert_eq!(all.len(), 7, "{state}");
            assert!(all.iter().all(|message| message.state == state));
            for page_items in [1, 2, 3, 7] {
                assert_eq!(queue.list_by(state, page_items).await, all, "{state} by {page_items}");
            }
        }
    }
}

async fn q7_pending_messages_are_listed_runnable_first<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("b1", 1, "b"), keyed("a5", 5, "a"), keyed("a9", 9, "a"), keyed("a7", 7, "a")]).await;
    queue.put([keyed("c0", 0, "c"), keyed("c8", 8, "c"), keyed("b3", 3, "b")]).await;
    assert_eq!(queue.list(State::Pending).await, ["c0", "b1", "a5", "a7", "a9", "b3", "c8"]);
    assert_eq!(queue.take_ids(1).await, ["c0"]);
    assert_eq!(queue.list(State::Pending).await, ["b1", "a5", "a7", "a9", "b3", "c8"]);
}

async fn q7_lists_go_by_time<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let hidden = |id: &str, ms| NewMessage { invisibility_ms: Some(ms), ..message(id, 1) };
    queue.put([hidden("late", 90), hidden("soon", 10), hidden("middle", 50)]).await;
    assert_eq!(queue.list(State::Invisible).await, ["soon", "middle", "late"]);
    queue.show_at("soon", stage.clock.now_ms() + 70).await.expect("an invisible message");
    assert_eq!(queue.list(State::Invisible).await, ["middle", "soon", "late"]);
    stage.clock.advance(90);
    let leases = queue.take(3).await;
    queue.extend(to(&leases[0]), Some(90_000), "").await.expect("a live lease");
    queue.extend(to(&leases[2]), Some(1_000), "").await.expect("a live lease");
    let ends = [2, 1, 0].map(|at: usize| leases[at].id.to_string());
    assert_eq!(queue.list(State::Running).await, ends);
    for (lease, ms) in leases.iter().rev().zip([1, 2, 3]) {
        stage.clock.advance(ms);
        queue.complete(to(lease)).await.expect("a live lease");
    }
    assert_eq!(queue.list(State::Completed).await, ends);
}

async fn q7_a_page_token_of_nobodys_is_refused<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("m", 1, "k")]).await;
    for state in State::ALL {
        for token in ["not one of ours", "é", "zz", "-1", "f"] {
            let page = queue.store.list_messages(&queue.shard, state, token, 5).await;
            assert!(matches!(page, Err(Refusal::Invalid { field: "page_token", .. })), "{state}, {token}: {page:?}");
        }
    }
}

async fn q7_explain_gathers_the_facts_of_each_state<S: Probe>(stage: &Stage<S>) {
    for state in State::ALL {
        let queue = stage.queue(exclusive()).await;
        let fencing_token = bring(&queue, keyed("m", 1, "k"), state).await;
        let message = Message { last_attempts: Vec::new(), ..queue.get("m").await };
        let facts = Facts { message, dequeue_blocked: false, holder: None, key_head: None, ahead: 0 };
        assert_eq!(queue.facts("m").await, facts);
        let kinds = async || queue.explain("m").await.iter().map(|hindrance| hindrance.kind).collect::<Vec<_>>();
        let kind = match state {
            State::Invisible => HindranceKind::Invisible,
            State::Pending => HindranceKind::WaitingForWorker,
            State::Running => HindranceKind::Running,
            State::Completed | State::Canceled => HindranceKind::Terminal,
            State::Errored => HindranceKind::NoAttemptsLeft,
        };
        assert_eq!(kinds().await, [kind]);
        queue.reconfigure(QueuePatch { dequeue_blocked: Some(true), ..QueuePatch::default() }).await;
        assert_eq!(queue.through(&stage.other).facts("m").await, Facts { dequeue_blocked: true, ..facts });
        let waits = matches!(state, State::Invisible | State::Pending);
        assert_eq!(kinds().await, if waits { vec![HindranceKind::QueuePaused, kind] } else { vec![kind] });
        assert_eq!(queue.get("m").await.fencing_token, fencing_token);
    }
    let queue = stage.queue(simple()).await;
    let absent = queue.store.explain(&queue.shard, &id("none")).await;
    assert_eq!(absent, missing("none"));
}

async fn q7_explain_names_what_is_in_the_way<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("a", 1, "k"), keyed("b", 2, "k"), keyed("c", 3, "k"), keyed("d", 0, "other")]).await;
    let b = queue.facts("b").await;
    assert_eq!((b.holder, b.key_head, b.ahead), (None, Some(id("a")), 0));
    assert_eq!(queue.facts("c").await.key_head, Some(id("a")), "the head, not the next one");
    queue.take(1).await;
    let lease = queue.take_one().await;
    assert_eq!(lease.id, id("a"));
    let holder = Holder { id: id("a"), worker: "w".to_owned(), expires_at_ms: lease.expires_at_ms };
    for waiting in ["b", "c"] {
        let facts = queue.facts(waiting).await;
        assert_eq!((facts.holder, facts.key_head), (Some(holder.clone()), None));
    }
    let hindrance = queue.explain("b").await.remove(0);
    assert_eq!((hindrance.kind, hindrance.blocking_id), (HindranceKind::KeyLocked, Some(id("a"))));
    assert_eq!((hindrance.worker.as_str(), hindrance.until_ms), ("w", lease.expires_at_ms));
    let expires_at_ms = queue.extend(to(&lease), Some(90_000), "").await.expect("a live lease");
    assert_eq!(queue.facts("b").await.holder, Some(Holder { expires_at_ms, ..holder }));
    queue.complete(lease_ref("a", lease.fencing_token)).await.expect("a live lease");
    assert_eq!(queue.facts("b").await.holder, None);
    assert_eq!(queue.facts("c").await.key_head, Some(id("b")));
}

async fn q7_explain_counts_those_ahead<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put((0..5).map(|n| message(&format!("m{n}"), n))).await;
    assert_eq!(queue.facts("m3").await.ahead, 3);
    queue.cancel(no_lease("m1"), "").await.expect("a pending message");
    queue.take(1).await;
    assert_eq!((queue.facts("m3").await.ahead, queue.facts("m2").await.ahead), (1, 0));
    // In an exclusive queue only those that could run before it count.
    let queue = stage.queue(exclusive()).await;
    queue.put((0..6).map(|n| keyed(&format!("m{n}"), n, &format!("k{}", n % 3)))).await;
    assert_eq!(queue.facts("m2").await.ahead, 2);
    queue.take(1).await;
    assert_eq!(queue.facts("m2").await.ahead, 1);
}

async fn q9_depth_counts_every_state<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    assert_eq!(queue.depth().await, Depth::default());
    let mut expected = Depth::default();
    for (at, state) in State::ALL.into_iter().enumerate() {
        for n in 0..=at {
            let key = format!("{state} {n}");
            bring(&queue, keyed(&key, -((at * 10 + n) as i64), &key), state).await;
        }
        *expected.of_mut(state) = at as u64 + 1;
        assert_eq!(queue.depth().await, expected);
        assert_eq!(queue.through(&stage.other).depth().await, expected, "Q13: no stale answer");
        assert_eq!(sorted(queue.list(state).await).len(), at + 1);
    }
    assert_eq!(expected.live(), 1 + 2 + 3);
}
