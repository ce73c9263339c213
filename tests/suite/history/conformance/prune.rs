//! The retention: Q19. It belongs to the whole store, so these tests have their own store. Events that are days older
//! than the retention are removed and younger ones kept; close to the limit a store may do either.

use tallystone_indexer::{SearchQuery, Trace, fold};
use tallystone_model::State;
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, events_of};

over_history_stores!(q19_events_past_the_retention_are_removed_and_others_kept);

const DAY_MS: u64 = 86_400_000;

async fn q19_events_past_the_retention_are_removed_and_others_kept<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let own = HistoryFixture::new(S::fresh(3 * DAY_MS).await, history.queue.as_str());
    let now_ms = BEGIN_MS + 10 * DAY_MS;
    let tags = [("carrier", "UA")];
    let life = |id: &str, at_ms: u64| own.life(id).tagged(&tags).payload(b"begin").at(at_ms).enqueued();
    // Messages that were collected long ago; one that has waited since then; one that was leased since; a recent one.
    let old: Vec<_> = (0..300)
        .map(|number| life(&format!("old{number}"), BEGIN_MS + number).leased("w").after(5).completed().collected())
        .collect();
    let waiting = life("waiting", BEGIN_MS + 1_000);
    let woken = life("woken", BEGIN_MS + 2_000).at(now_ms - 3_600_000).leased("w");
    let young = life("young", now_ms - DAY_MS).canceled("late").collected();
    own.record_and_show(&events_of(&old)).await;
    own.record_and_show(&events_of(&[waiting.clone(), woken.clone(), young.clone()])).await;
    let with_gone = SearchQuery { include_gone: true, ..own.any() };
    assert_eq!(own.search(&with_gone).await.len(), 303);
    // Nothing is past the retention yet.
    while own.store().prune(BEGIN_MS + 2 * DAY_MS).await.expect("a step") {}
    own.show().await;
    assert_eq!(own.search(&with_gone).await.len(), 303);
    assert_eq!(own.trace("old7").await.transitions.len(), 4);
    for round in 0..2 {
        while own.store().prune(now_ms).await.expect("a step") {}
        own.show().await;
        assert_eq!(own.ids(&with_gone).await, ["young", "woken", "waiting"], "round {round}");
        assert_eq!(own.trace("old7").await, Trace::default());
        let of_tags = SearchQuery { metadata: [("carrier".to_owned(), "UA".to_owned())].into(), ..with_gone.clone() };
        assert_eq!(own.ids(&of_tags).await, ["young", "woken", "waiting"]);
        // A message that its queue still has stays, however old, with its newest transitions.
        assert_eq!(own.depth(&tags).await, [0, 1, 1, 0, 0, 0]);
        let message = own.trace("waiting").await.message.expect("a message that waits");
        assert_eq!((message.state, message.payload.as_deref()), (State::Pending as i32, Some(&b"begin"[..])));
        let trace = own.trace("woken").await;
        assert_eq!(trace.transitions.last(), Some(&fold::transition(&woken.last().event)));
        assert_eq!(own.trace("young").await.transitions.len(), 3);
        let stats = own.stats(now_ms - 2 * DAY_MS, now_ms, None).await;
        assert_eq!(stats[0].states.iter().map(|state| state.entered).sum::<u64>(), 3, "young twice, woken once");
        assert_eq!(
            own.stats(BEGIN_MS, BEGIN_MS + DAY_MS / 2, None).await[0].states,
            [],
            "nothing of the removed messages"
        );
    }
    // The id of a pruned message can be used again.
    let again = own.life("old7").at(now_ms).enqueued();
    own.record_and_show(&again.events()).await;
    let expected = fold::message(again.last());
    assert_eq!(own.trace("old7").await.message, Some(expected));
}
