//! The number of messages in each state: Q20.

use tallystone_tests::{HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(q20_a_depth_counts_by_state_and_any_pairs, q20_a_depth_follows_the_transitions,);

async fn q20_a_depth_counts_by_state_and_any_pairs<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let queue = history.queue.clone();
    let life = |id: &str, tags: &[(&str, &str)]| Life::new(&queue, id).tagged(tags).after(1);
    let (ua, aa, iah) = (("carrier", "UA"), ("carrier", "AA"), ("to", "IAH"));
    let lives = [
        life("a", &[ua, iah]).enqueued_for(1_000),
        life("b", &[ua, iah]).enqueued(),
        life("c", &[ua]).enqueued(),
        life("d", &[aa, iah]).enqueued(),
        life("e", &[ua, iah]).enqueued().leased("w"),
        life("f", &[]).enqueued().leased("w").completed(),
        life("g", &[ua]).enqueued().canceled(""),
        life("h", &[aa]).enqueued().leased("w").errored(""),
        life("i", &[aa]).enqueued().leased("w").errored(""),
        life("gone", &[ua, iah]).enqueued().canceled("").after(1).collected(),
        Life::new(&history.another_queue(), "a").tagged(&[ua]).enqueued(),
    ];
    history.record_and_show(&events_of(&lives)).await;
    assert_eq!(history.depth(&[]).await, [1, 3, 1, 1, 1, 2]);
    assert_eq!(history.depth(&[ua]).await, [1, 2, 1, 0, 1, 0]);
    assert_eq!(history.depth(&[aa]).await, [0, 1, 0, 0, 0, 2]);
    assert_eq!(history.depth(&[iah]).await, [1, 2, 1, 0, 0, 0]);
    assert_eq!(history.depth(&[ua, iah]).await, [1, 1, 1, 0, 0, 0]);
    assert_eq!(history.depth(&[aa, iah]).await, [0, 1, 0, 0, 0, 0]);
    assert_eq!(history.depth(&[("carrier", "IAH")]).await, [0; 6]);
    assert_eq!(history.depth(&[ua, ("none", "none")]).await, [0; 6]);
}

async fn q20_a_depth_follows_the_transitions<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let tags = [("tail", "N1")];
    assert_eq!(history.depth(&[]).await, [0; 6], "a queue that never existed");
    let enqueued = history.life("m").tagged(&tags).enqueued_for(10);
    let shown = enqueued.clone().after(10).shown();
    let leased = shown.clone().after(1).leased("w");
    let completed = leased.clone().after(1).completed();
    let gone = completed.clone().after(1).collected();
    let states = [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0; 6]];
    for (life, depth) in [enqueued, shown, leased, completed, gone].into_iter().zip(states) {
        history.record_and_show(std::slice::from_ref(life.last())).await;
        assert_eq!(
            (history.depth(&[]).await, history.depth(&tags).await),
            (depth, depth),
            "{:?}",
            life.last().event.to
        );
    }
}
