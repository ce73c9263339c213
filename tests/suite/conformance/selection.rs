//! Changes of all messages that a selection matches (Q25).

use super::bring;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lost, sorted, to, wrong};
use tallystone_tests::*;

over_each_store!(
    q25_a_redrive_by_selection_goes_page_by_page,
    q25_every_condition_must_be_fulfilled,
    q25_running_messages_are_canceled_if_their_state_is_selected,
    q25_an_update_counts_only_what_it_changes,
    q25_in_an_exclusive_queue_none_is_missed,
    q25_messages_that_changed_between_pages_are_judged_again,
    q25_what_fails_again_is_not_redriven_twice,
    q25_a_walk_goes_on_where_equal_times_were_left,
    q25_a_full_queue_refuses_a_redrive_and_says_which,
    q25_a_dry_run_changes_nothing,
    q25_bad_selections_change_nothing,
);

fn select(states: &[State]) -> Selection {
    Selection { states: states.iter().copied().collect(), ..Selection::default() }
}

fn cancel() -> Change {
    Change::Cancel { reason: "selected".to_owned() }
}

fn priority(priority: i64) -> Change {
    Change::Update(MessagePatch { priority: Some(priority), visible_at_ms: None })
}

fn request(selection: Selection, change: Change) -> ChangeRequest {
    ChangeRequest { selection, change, dry_run: false }
}

async fn page<S: Probe>(queue: &TestQueue<S>, request: &ChangeRequest, cursor: &str, limit: usize) -> ChangedPage {
    queue.store.change_messages(&queue.shard, request, cursor, limit).await.expect("a page")
}

/// All pages: examined, matched and changed of each.
async fn walk<S: Probe>(queue: &TestQueue<S>, request: &ChangeRequest, limit: usize) -> Vec<(u64, u64, u64)> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = page(queue, request, &cursor, limit).await;
        assert_eq!(page.refused, []);
        pages.push((page.examined, page.matched, page.changed));
        assert!(pages.len() < 100, "without end: {pages:?}");
        if page.next_cursor.is_empty() {
            return pages;
        }
        cursor = page.next_cursor;
    }
}

fn changed(pages: &[(u64, u64, u64)]) -> u64 {
    pages.iter().map(|(_, _, changed)| changed).sum()
}

/// Errored messages m0, m1, …, one ms after the other.
async fn errored<S: Probe>(queue: &TestQueue<S>, count: usize) {
    for n in 0..count {
        bring(queue, tagged(&format!("m{n}"), 1, &[("org", ["x", "y"][n % 2])]), State::Errored).await;
        queue.clock.advance(1);
    }
}

async fn q25_a_redrive_by_selection_goes_page_by_page<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    errored(&queue, 7).await;
    bring(&queue, message("unwanted", 1), State::Canceled).await;
    let redrive = request(
        Selection { filter: Some(filter(&[("org", "x")])), ..select(&[State::Canceled, State::Errored]) },
        Change::Redrive,
    );
    // The canceled message first: in the order of the states.
    assert_eq!(walk(&queue, &redrive, 3).await, [(1, 0, 0), (3, 2, 2), (3, 1, 1), (1, 1, 1)]);
    assert_eq!(queue.list(State::Errored).await, ["m1", "m3", "m5"]);
    assert_eq!(sorted(queue.list(State::Pending).await), ["m0", "m2", "m4", "m6"]);
    assert_eq!(queue.get("m0").await.attempts, 0);
    assert_eq!(walk(&queue, &redrive, 1_000).await, [(1, 0, 0), (3, 0, 0)], "a repetition finds none");
}

async fn q25_every_condition_must_be_fulfilled<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let begin_ms = stage.clock.now_ms();
    for (n, reason) in ["Timeout of x", "timeout", "refused", ""].into_iter().enumerate() {
        let name = format!("m{n}");
        queue
            .put([NewMessage { max_attempts: Some(1), ..tagged(&name, 1, &[("org", "x"), ("n", &n.to_string())]) }])
            .await;
        queue.release(to(&queue.take_one().await), None, reason).await.expect("a live lease");
        stage.clock.advance(10);
    }
    let any = select(&[State::Errored]);
    let only = |pairs: &[(&str, &str)]| Some(filter(pairs));
    for (selection, matched) in [
        (any.clone(), 4),
        (Selection { reason_contains: "TIMEOUT".to_owned(), ..any.clone() }, 2),
        (Selection { reason_contains: "t of".to_owned(), ..any.clone() }, 1),
        (Selection { reason_contains: "%a+".to_owned(), ..any.clone() }, 0),
        (Selection { reason: "timeout".to_owned(), ..any.clone() }, 1),
        (Selection { reason: "time".to_owned(), ..any.clone() }, 0),
        (Selection { filter: only(&[("org", "x")]), ..any.clone() }, 4),
        (Selection { filter: only(&[("org", "x"), ("n", "2")]), ..any.clone() }, 1),
        (Selection { filter: only(&[("other", "x")]), ..any.clone() }, 0),
        (Selection { entered_from_ms: begin_ms + 10, ..any.clone() }, 3),
        (Selection { entered_to_ms: Some(begin_ms + 10), ..any.clone() }, 1),
        (Selection { entered_from_ms: begin_ms + 10, entered_to_ms: Some(begin_ms + 30), ..any.clone() }, 2),
        (Selection { reason: "refused".to_owned(), filter: only(&[("n", "1")]), ..any.clone() }, 0),
        (select(&[State::Canceled]), 0),
    ] {
        let dry_run = ChangeRequest { dry_run: true, ..request(selection, Change::Redrive) };
        let found = page(&queue, &dry_run, "", 1_000).await;
        assert_eq!((found.matched, found.changed), (matched, 0), "{:?}", dry_run.selection);
    }
}

async fn q25_running_messages_are_canceled_if_their_state_is_selected<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put(["a", "b"].map(|name| keyed(name, 1, name))).await;
    queue.put([keyed("later", 2, "a")]).await;
    let leases = queue.take(2).await;
    assert_eq!(changed(&walk(&queue, &request(select(&[State::Pending, State::Invisible]), cancel()), 9).await), 1);
    assert_eq!(queue.state("a").await, State::Running);
    assert_eq!(changed(&walk(&queue, &request(select(&[State::Running]), cancel()), 9).await), 2);
    for lease in &leases {
        assert_eq!(queue.complete(to(lease)).await, lost(lease.id.as_str(), State::Canceled));
        assert_eq!(queue.get(lease.id.as_str()).await.reason, "selected");
    }
    assert_eq!(queue.list(State::Canceled).await.len(), 3);
}

async fn q25_an_update_counts_only_what_it_changes<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put((0..5).map(|n| message(&format!("m{n}"), n))).await;
    // m0, m1 and m2 move behind the cursor's message, and are examined once more.
    let pages = walk(&queue, &request(select(&[State::Pending]), priority(3)), 2).await;
    assert_eq!(pages, [(2, 2, 2), (2, 1, 1), (2, 0, 0), (2, 1, 1), (0, 0, 0)]);
    assert_eq!(queue.list_by(State::Pending, 9).await.iter().map(|m| m.priority).collect::<Vec<_>>(), [3; 5]);
    assert_eq!(queue.get("m3").await.version, 1, "it had that priority");
    let due_ms = stage.clock.now_ms() + 500;
    let hide = Change::Update(MessagePatch { priority: None, visible_at_ms: Some(due_ms) });
    let both = request(select(&[State::Pending, State::Invisible]), hide);
    assert_eq!(changed(&walk(&queue, &both, 2).await), 5);
    assert_eq!(queue.list_by(State::Invisible, 9).await.iter().map(|m| m.due_ms).collect::<Vec<_>>(), [due_ms; 5]);
}

async fn q25_in_an_exclusive_queue_none_is_missed<S: Probe>(stage: &Stage<S>) {
    for limit in [1, 2, 5, 1_000] {
        for change in [cancel(), priority(-5), priority(2), priority(99)] {
            let queue = stage.queue(exclusive()).await;
            queue.put((0..12).map(|n| keyed(&format!("m{n:02}"), n % 4 + n / 4, &format!("k{}", n % 3)))).await;
            let already = match &change {
                Change::Update(MessagePatch { priority: Some(p), .. }) => {
                    (0..12).filter(|n| n % 4 + n / 4 == *p).count()
                }
                _ => 0,
            };
            let done = changed(&walk(&queue, &request(select(&[State::Pending]), change.clone()), limit).await);
            assert_eq!(done, 12 - already as u64, "{change:?} in pages of {limit}");
        }
    }
}

async fn q25_messages_that_changed_between_pages_are_judged_again<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put((0..6).map(|n| message(&format!("m{n}"), n))).await;
    let all = request(select(&[State::Pending]), cancel());
    let first = page(&queue, &all, "", 2).await;
    assert_eq!(first.changed, 2);
    let lease = queue.take_one().await;
    assert_eq!(lease.id, id("m2"));
    queue.put([message("new", 9)]).await;
    stage.clock.advance(1);
    queue.put([message("newer", 9)]).await;
    let second = page(&queue.through(&stage.other), &all, &first.next_cursor, 1_000).await;
    assert_eq!((second.examined, second.matched, second.changed), (5, 4, 4), "newer came after the first call");
    assert_eq!(queue.list(State::Pending).await, ["newer"]);
    queue.complete(to(&lease)).await.expect("its lease was left alone");
    assert_eq!(queue.redrive("m2").await, wrong("m2", State::Completed));
}

async fn q25_what_fails_again_is_not_redriven_twice<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    errored(&queue, 3).await;
    let redrive = request(select(&[State::Errored]), Change::Redrive);
    let mut cursor = String::new();
    let mut all = 0;
    for _ in 0..20 {
        let step = page(&queue, &redrive, &cursor, 1).await;
        all += step.changed;
        cursor = step.next_cursor;
        if cursor.is_empty() {
            break;
        }
        stage.clock.advance(1);
        for lease in queue.take(9).await {
            queue.release_for_good(to(&lease), Verdict::Error, "again").await.expect("a live lease");
        }
    }
    assert_eq!((all, cursor.as_str()), (3, ""));
    assert_eq!(queue.list(State::Errored).await.len(), 3);
}

async fn q25_a_walk_goes_on_where_equal_times_were_left<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Running] {
        let queue = stage.queue(simple()).await;
        let sent = |n: usize| {
            let message = tagged(&format!("m{n:02}"), n as i64, &[("org", ["x", "y"][n % 2])]);
            let invisibility_ms = (state == State::Invisible).then_some(60_000);
            NewMessage { invisibility_ms, ..message }
        };
        queue.put((0..20).map(sent)).await;
        if state == State::Running {
            assert_eq!(queue.take(20).await.len(), 20);
        }
        // Every page ends at a message that it removes.
        let even = Selection { filter: Some(filter(&[("org", "x")])), ..select(&[state]) };
        let pages = walk(&queue, &request(even, cancel()), 3).await;
        assert_eq!(pages.iter().map(|(examined, ..)| examined).sum::<u64>(), 20, "each once: {pages:?}");
        assert_eq!((changed(&pages), queue.list(state).await.len()), (10, 10));
    }
}

async fn q25_a_full_queue_refuses_a_redrive_and_says_which<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_depth: 2, ..simple() }).await;
    errored(&queue, 4).await;
    let step = page(&queue, &request(select(&[State::Errored]), Change::Redrive), "", 3).await;
    let full = Refusal::QueueFull { queue: queue.name().to_string(), max_depth: 2 };
    assert_eq!((step.examined, step.matched, step.changed), (3, 3, 2));
    assert_eq!(step.refused, [(id("m2"), full)]);
    assert_eq!(queue.list(State::Errored).await, ["m2", "m3"]);
}

async fn q25_a_dry_run_changes_nothing<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    for (at, state) in State::ALL.into_iter().enumerate() {
        bring(&queue, keyed(state.name(), -(at as i64), state.name()), state).await;
    }
    let before = queue.snapshot().await;
    for change in [Change::Redrive, cancel(), priority(77)] {
        let states: Vec<State> = State::ALL.into_iter().filter(|state| change.applies_to(*state)).collect();
        let dry_run = ChangeRequest { dry_run: true, ..request(select(&states), change) };
        let pages = walk(&queue, &dry_run, 1).await;
        let matched: u64 = pages.iter().map(|(_, matched, _)| matched).sum();
        assert_eq!((matched, changed(&pages)), (states.len() as u64, 0), "{dry_run:?}");
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q25_bad_selections_change_nothing<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 1), State::Errored).await;
    let before = queue.snapshot().await;
    let hide = Change::Update(MessagePatch { priority: None, visible_at_ms: Some(1) });
    for (states, change) in [
        (&[][..], Change::Redrive),
        (&[State::Errored, State::Pending], Change::Redrive),
        (&[State::Completed], cancel()),
        (&[State::Errored], priority(1)),
        (&[State::Running], hide),
    ] {
        let answer = queue.store.change_messages(&queue.shard, &request(select(states), change), "", 9).await;
        assert!(matches!(answer, Err(Refusal::Invalid { field: "states", .. })), "{states:?}: {answer:?}");
    }
    for token in ["not one of ours", "0.6.", "5.6", "5.3.", "5.6.zz", "5.6.0", "9999999999999999.6.", "é"] {
        let redrive = request(select(&[State::Errored]), Change::Redrive);
        let answer = queue.store.change_messages(&queue.shard, &redrive, token, 9).await;
        assert!(matches!(answer, Err(Refusal::Invalid { field: "page_token", .. })), "{token}: {answer:?}");
    }
    let missing = Shard::first(&stage.queue_name());
    let answer =
        stage.store.change_messages(&missing, &request(select(&[State::Errored]), Change::Redrive), "", 9).await;
    assert_eq!(answer, Err(Refusal::QueueNotFound { queue: missing.queue.to_string() }));
    assert_eq!(queue.snapshot().await, before);
}
