//! The transitions of one id: Q20.

use std::slice::from_ref;
use tallystone_indexer::{SearchQuery, Trace, fold};
use tallystone_model::State;
use tallystone_proto::event::v1::Cause;
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(
    q20_a_trace_has_every_transition_in_order,
    q20_a_trace_has_every_message_of_an_id,
    q20_a_trace_comes_in_pages,
    q20_the_first_events_payload_is_in_the_trace,
    q22_the_longest_kept_part_of_a_payload_is_in_the_trace,
    q23_a_completed_message_has_its_result_in_trace_and_search,
    q20_an_unknown_id_has_an_empty_trace,
    q20_a_missing_version_is_left_out,
    q20_an_id_in_another_queue_is_another_message,
);

/// The transitions of these lives, as the store must return them.
fn transitions_of(lives: &[Life]) -> Vec<TracedTransition> {
    events_of(lives).iter().map(|recorded| fold::transition(&recorded.event)).collect()
}

fn message(life: &Life) -> Option<IndexedMessage> {
    Some(fold::message(life.last()))
}

async fn q20_a_trace_has_every_transition_in_order<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let life = history.life("m").priority(-3).tagged(&[("tail", "N1")]).enqueued_for(500).after(501).shown();
    let life = life.after(10).leased("w1").after(1_000).extended().after(250).released("no gate");
    let life = life.after(5).leased("w2").after(30_000).expired().reprioritized(4).after(7).leased("w1");
    let life = life.after(20).completed().after(600_000).collected();
    history.record_and_show(&life.events()).await;
    let trace = history.trace("m").await;
    assert_eq!(trace, Trace { transitions: transitions_of(from_ref(&life)), more: false, message: message(&life) });
    // Some rows written by hand, so that the fold is not only compared with itself.
    let row = |version: usize| &trace.transitions[version - 1];
    let states = |version: usize| (row(version).from_state, row(version).to_state, row(version).cause());
    assert_eq!(states(1), (0, State::Invisible as i32, Cause::Enqueue));
    assert_eq!((row(1).version, row(1).spent_ms, row(1).due_ms), (1, 0, BEGIN_MS as i64 + 500));
    assert_eq!(states(2), (State::Invisible as i32, State::Pending as i32, Cause::WindowElapsed));
    assert_eq!((row(2).spent_ms, row(2).worker.as_str()), (501, ""));
    assert_eq!((row(3).spent_ms, row(3).worker.as_str(), row(3).attempt), (10, "w1", 1));
    assert_eq!(states(4), (State::Running as i32, State::Running as i32, Cause::ExtendLease));
    assert_eq!(row(4).spent_ms, 1_000, "so far");
    assert_eq!(
        (row(5).spent_ms, row(5).reason.as_str(), row(5).fencing_token),
        (1_250, "no gate", row(3).fencing_token)
    );
    assert_eq!((row(6).reason.as_str(), row(6).attempt, row(6).worker.as_str()), ("", 2, "w2"));
    assert_eq!((states(7).2, row(7).reason.as_str()), (Cause::LeaseExpired, "lease expired"));
    assert_eq!((row(7).priority, row(8).priority), (-3, 4));
    assert_eq!(states(11), (State::Completed as i32, 0, Cause::Collect));
    let message = trace.message.expect("a message");
    assert_eq!((message.gone, message.state, message.version), (true, State::Completed as i32, 11));
    assert_eq!((message.reason.as_str(), message.attempts, message.worker.as_str()), ("lease expired", 3, "w1"));
}

async fn q20_a_trace_has_every_message_of_an_id<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let life = |at: u64| history.life("m").sequence(BEGIN_MS * 1_000 + at).at(BEGIN_MS + at);
    let first = life(10).enqueued().after(5).leased("w").canceled("enough").after(1).collected();
    let second = life(20).priority(2).enqueued().leased("w").errored("broken").after(1).collected();
    let third = life(30).enqueued();
    history.record_and_show(&events_of(&[third.clone(), first.clone(), second.clone()])).await;
    let trace = history.trace("m").await;
    assert_eq!(trace.transitions, transitions_of(&[first.clone(), second.clone(), third.clone()]));
    assert_eq!(trace.message, message(&third), "the newest");
    let of_second = history.trace_as("m", |query| query.sequence = Some(BEGIN_MS * 1_000 + 20)).await;
    assert_eq!(
        of_second,
        Trace { transitions: transitions_of(from_ref(&second)), more: false, message: message(&second) }
    );
    let of_none = history.trace_as("m", |query| query.sequence = Some(BEGIN_MS * 1_000 + 21)).await;
    assert_eq!(of_none, Trace::default());
}

async fn q20_a_trace_comes_in_pages<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = Vec::new();
    for at in 1..=3 {
        let mut life = history.life("m").sequence(BEGIN_MS * 1_000 + at).at(BEGIN_MS + at).enqueued();
        for priority in 0..4 {
            life = life.after(1).reprioritized(priority);
        }
        lives.push(life.canceled("").collected());
    }
    history.record_and_show(&events_of(&lives)).await;
    let all = transitions_of(&lives);
    assert_eq!(all.len(), 21);
    for limit in [1, 2, 7, 20, 21, 22] {
        let (mut transitions, mut after) = (Vec::new(), None);
        loop {
            let page = history.trace_as("m", |query| (query.limit, query.after) = (limit, after)).await;
            assert_eq!(page.message, message(&lives[2]), "on every page");
            assert_eq!(page.transitions, all[transitions.len()..][..limit.min(all.len() - transitions.len())]);
            transitions.extend(page.transitions);
            assert_eq!(page.more, transitions.len() < all.len(), "{limit} per page, {} found", transitions.len());
            if !page.more {
                break;
            }
            after = transitions.last().map(|row: &TracedTransition| (row.sequence, row.version));
        }
        assert_eq!(transitions, all, "{limit} per page");
    }
    let past = history.trace_as("m", |query| query.after = Some((BEGIN_MS * 1_000 + 3, 7))).await;
    assert_eq!((past.transitions, past.more), (Vec::new(), false));
    let within = history.trace_as("m", |query| query.after = Some((BEGIN_MS * 1_000 + 2, 5))).await;
    assert_eq!(within.transitions, all[12..]);
}

async fn q22_the_longest_kept_part_of_a_payload_is_in_the_trace<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let part = |bytes: &'static [u8]| Some(bytes.into());
    for (id, newest_first) in [("in order", false), ("newest first", true)] {
        let life = history.life(id).payload(b"beg").enqueued().after(1).leased("w").after(1).completed();
        let mut events = events_of(&[life]);
        events.last_mut().expect("an event").event.payload = part(b"begin");
        if newest_first {
            events.reverse();
        }
        for event in events {
            history.record_and_show(&[event]).await;
        }
        let message = history.trace(id).await.message.expect("a message");
        assert_eq!(message.payload.as_deref(), Some(&b"begin"[..]), "{id}");
    }
}

async fn q20_the_first_events_payload_is_in_the_trace<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let with = history.life("with").payload(b"\0\xffbegin").enqueued().after(1).leased("w").after(1).completed();
    let empty = history.life("empty").payload(b"").enqueued();
    let without = history.life("without").enqueued();
    // The newest first: the payload comes with an old event.
    let mut events = events_of(&[with.clone(), empty, without]);
    events.reverse();
    history.record_and_show(&events).await;
    let payload = async |id: &str| history.trace(id).await.message.expect("a message").payload;
    assert_eq!(payload("with").await.as_deref(), Some(&b"\0\xffbegin"[..]));
    assert_eq!(payload("empty").await.as_deref(), Some(&b""[..]));
    assert_eq!(payload("without").await, None);
    assert_eq!(history.trace("with").await.message.expect("a message").version, 3);
    for message in history.search(&history.any()).await {
        assert_eq!(message.payload, None, "a search returns no payloads: {message:?}");
    }
}

async fn q23_a_completed_message_has_its_result_in_trace_and_search<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let begun = |id: &str| history.life(id).enqueued().after(1).leased("w").after(1);
    let kept = begun("kept").completed_with(b"\0\xffgate 7");
    let gone = begun("gone").completed_with(b"landed").after(1).collected();
    let without = begun("without").completed().after(1).collected();
    let mut events = events_of(&[kept, gone.clone(), without]);
    // Each event after a later one: the newest counts, in one batch and in several.
    events.reverse();
    for batch in events.chunks(3) {
        history.record_and_show(batch).await;
    }
    let expected: [(&str, &[u8]); 3] = [("gone", b"landed"), ("kept", b"\0\xffgate 7"), ("without", b"")];
    for (id, result) in expected {
        assert_eq!(history.trace(id).await.message.expect("a message").result, result, "{id}");
    }
    let mut found = history.search(&SearchQuery { include_gone: true, ..history.any() }).await;
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let found: Vec<_> = found.iter().map(|message| (message.id.as_str(), &message.result[..])).collect();
    assert_eq!(found, expected);
    // A repair writes it, too.
    let message = IndexedMessage { version: 9, result: "repaired".into(), ..fold::message(gone.last()) };
    assert_eq!(history.store().repair(&[message]).await, Ok(vec![true]));
    history.show().await;
    assert_eq!(history.trace("gone").await.message.expect("a message").result, "repaired");
}

async fn q20_an_unknown_id_has_an_empty_trace<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    assert_eq!(history.trace("m").await, Trace::default(), "in a queue that never existed");
    history.record_and_show(&history.life("n").enqueued().events()).await;
    assert_eq!(history.trace("m").await, Trace::default());
}

async fn q20_a_missing_version_is_left_out<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let life = history.life("m").enqueued().after(1).leased("w").after(1).extended().after(1).completed();
    let events = life.events();
    history.record_and_show(&[events[1].clone(), events[3].clone()]).await;
    let trace = history.trace("m").await;
    let all = transitions_of(from_ref(&life));
    assert_eq!(trace.transitions, [all[1].clone(), all[3].clone()]);
    assert_eq!(trace.message, message(&life));
    history.record_and_show(&events).await;
    assert_eq!(history.trace("m").await.transitions, all, "it arrived late");
}

async fn q20_an_id_in_another_queue_is_another_message<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let (here, there) = (history.life("m").enqueued(), Life::new(&history.another_queue(), "m").enqueued().leased("w"));
    let near = history.life("M").enqueued().canceled("");
    history.record_and_show(&events_of(&[here.clone(), there, near])).await;
    assert_eq!(
        history.trace("m").await,
        Trace { transitions: transitions_of(from_ref(&here)), more: false, message: message(&here) }
    );
}
