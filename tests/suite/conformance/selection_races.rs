//! Selections while workers change the same messages (Q25), on a real Redis.

use std::collections::HashSet;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::RedisStore;
use tallystone_tests::queue::to;
use tallystone_tests::*;

const MESSAGES: i64 = 2_000;
const CANCELED_BY: &str = "selected";

/// All pages of ten messages; how many were changed.
async fn walk(queue: &TestQueue<RedisStore>, state: State, change: Change) -> u64 {
    let selection = Selection { states: [state].into(), ..Selection::default() };
    let request = ChangeRequest { selection, change, dry_run: false };
    let (mut changed, mut cursor) = (0, String::new());
    loop {
        let page = queue.store.change_messages(&queue.shard, &request, &cursor, 10).await.expect("a page");
        assert_eq!(page.refused, []);
        changed += page.changed;
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return changed;
        }
    }
}

/// Takes messages until there are none, completes most and lets every fifth fail for good. Every lease must hold.
async fn work(queue: TestQueue<RedisStore>) -> u64 {
    let mut ended = 0;
    loop {
        let leases = queue.take(3).await;
        if leases.is_empty() {
            return ended;
        }
        for lease in leases {
            ended += 1;
            let went = match ended % 5 {
                0 => queue.release_for_good(to(&lease), Verdict::Error, "broken").await,
                _ => queue.complete(to(&lease)).await,
            };
            went.expect("no selection has pending or errored messages of this lease");
        }
    }
}

#[tokio::test]
async fn q25_selections_change_nothing_that_has_left_their_state() {
    let stage = Stage::redis("q25_races").await;
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        for hundred in 0..MESSAGES / 100 {
            let sent = (0..100).map(|n| keyed(&format!("m{}", hundred * 100 + n), n, &format!("k{}", n % 7)));
            queue.put(sent).await;
        }
        let workers: Vec<_> = (0..3).map(|_| tokio::spawn(work(queue.through(&stage.other)))).collect();
        let cancel = Change::Cancel { reason: CANCELED_BY.to_owned() };
        let update = Change::Update(MessagePatch { priority: Some(-1), visible_at_ms: None });
        let (canceled, redriven, updated) = tokio::join!(
            walk(&queue, State::Pending, cancel),
            walk(&queue, State::Errored, Change::Redrive),
            walk(&queue, State::Pending, update)
        );
        let mut ended = 0;
        for worker in workers {
            ended += worker.await.expect("a worker without a lost lease");
        }
        ended += work(queue.clone()).await;
        let events = queue.events().await;
        let by = |cause| events.iter().filter(|event| event.by == cause).collect::<Vec<_>>();
        assert!(
            by(Cause::Cancel).iter().all(|event| event.from == Some(State::Pending) && event.reason == CANCELED_BY)
        );
        assert!(by(Cause::Redrive).iter().all(|event| event.from == Some(State::Errored)));
        assert!(by(Cause::UpdateMessage).iter().all(|event| event.from == Some(State::Pending)));
        let counted = [by(Cause::Cancel).len(), by(Cause::Redrive).len(), by(Cause::UpdateMessage).len()];
        assert_eq!(counted, [canceled, redriven, updated].map(|n| n as usize), "each change is counted once");
        let ids: HashSet<&MessageId> = by(Cause::Cancel).iter().map(|event| &event.id).collect();
        assert_eq!(ids.len() as u64, canceled);
        assert!(canceled > 0 && ended > 0, "both had messages: {canceled} canceled, {ended} runs");
        assert_eq!(ended + canceled, MESSAGES as u64 + redriven);
        assert_eq!(queue.depth().await.live(), 0);
    }
    stage.assert_sound().await;
}
