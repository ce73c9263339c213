//! The number of messages in each state: Q20.

use tallystone_indexer::{DepthQuery, GroupBy, Queues};
use tallystone_model::QueueName;
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(
    q20_a_depth_counts_by_state_and_any_pairs,
    q20_a_depth_follows_the_transitions,
    q20_a_depth_of_several_queues_by_priority_and_age,
    q20_a_depth_by_groups,
);

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

/// Messages of three queues, whose names are `NAME/a`, `NAME/ab` and `NAME/b`.
async fn three_queues<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> [QueueName; 3] {
    let named = |end: &str| QueueName::parse("queue", &format!("{}/{end}", history.queue)).expect("a name");
    let queues = ["a", "ab", "b"].map(named);
    let life = |at: usize, id: &str, priority: i64, second: u64, tags: &[(&str, &str)]| {
        Life::new(&queues[at], id).priority(priority).at(BEGIN_MS + second * 1_000).tagged(tags)
    };
    let (ua, aa) = (("carrier", "UA"), ("carrier", "AA"));
    let lives = [
        life(0, "1", i64::MIN, 0, &[ua]).enqueued(),
        life(0, "2", -1, 1, &[ua, ("to", "UA")]).enqueued().leased("w"),
        life(0, "3", 0, 2, &[aa]).enqueued().leased("w").errored("no"),
        life(1, "4", 5, 3, &[aa]).enqueued(),
        life(1, "5", 5, 4, &[]).enqueued_for(60_000),
        life(2, "6", i64::MAX, 5, &[("carrier", "ÅÄ")]).enqueued(),
        life(2, "7", 0, 6, &[("carriers", "x"), ("carrie", "x")]).enqueued(),
        life(2, "gone", 0, 6, &[ua]).enqueued().canceled("").collected(),
    ];
    history.record_and_show(&events_of(&lives)).await;
    queues
}

async fn q20_a_depth_of_several_queues_by_priority_and_age<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let [a, ..] = three_queues(history).await;
    let all = || DepthQuery::of(Queues::WithPrefix(format!("{}/", history.queue)));
    let with_a = || DepthQuery::of(Queues::WithPrefix(a.to_string()));
    let second = |second: u64| Some(BEGIN_MS + second * 1_000);
    for (query, depth) in [
        (all(), [1, 4, 1, 0, 0, 1]),
        (with_a(), [1, 2, 1, 0, 0, 1]),
        (DepthQuery::of(Queues::One(a.clone())), [0, 1, 1, 0, 0, 1]),
        (DepthQuery::of(Queues::WithPrefix(format!("{}/c", history.queue))), [0; 6]),
        (DepthQuery { priority_min: Some(0), ..all() }, [1, 3, 0, 0, 0, 1]),
        (DepthQuery { priority_max: Some(-1), ..all() }, [0, 1, 1, 0, 0, 0]),
        (DepthQuery { priority_min: Some(-1), priority_max: Some(5), ..all() }, [1, 2, 1, 0, 0, 1]),
        (DepthQuery { priority_min: Some(i64::MAX), ..all() }, [0, 1, 0, 0, 0, 0]),
        (DepthQuery { priority_max: Some(i64::MIN), ..all() }, [0, 1, 0, 0, 0, 0]),
        (DepthQuery { enqueued_from_ms: second(2), enqueued_to_ms: second(5), ..all() }, [1, 1, 0, 0, 0, 1]),
        (DepthQuery { enqueued_to_ms: second(0), ..all() }, [0; 6]),
        (DepthQuery { enqueued_from_ms: second(5), ..with_a() }, [0; 6]),
        (
            DepthQuery {
                metadata: [("carrier".to_owned(), "AA".to_owned())].into(),
                priority_min: Some(1),
                enqueued_from_ms: second(3),
                ..all()
            },
            [0, 1, 0, 0, 0, 0],
        ),
    ] {
        assert_eq!(history.depth_of(&query).await, depth, "{query:?}");
    }
}

async fn q20_a_depth_by_groups<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let [a, ab, b] = three_queues(history).await.map(|queue| queue.to_string());
    let all = DepthQuery::of(Queues::WithPrefix(format!("{}/", history.queue)));
    let group = |value: &str, depth: [u64; 6]| (value.to_owned(), depth);
    let carrier = || GroupBy::Key("carrier".to_owned());
    let by_carrier =
        [group("AA", [0, 1, 0, 0, 0, 1]), group("UA", [0, 1, 1, 0, 0, 0]), group("ÅÄ", [0, 1, 0, 0, 0, 0])];
    let by_queue = [group(&a, [0, 1, 1, 0, 0, 1]), group(&ab, [1, 1, 0, 0, 0, 0]), group(&b, [0, 2, 0, 0, 0, 0])];
    for limit in [1, 2, 3, 100] {
        assert_eq!(history.depth_by(&all, carrier(), limit).await, by_carrier, "{limit} per page");
        assert_eq!(history.depth_by(&all, GroupBy::Queue, limit).await, by_queue, "{limit} per page");
    }
    let urgent = DepthQuery { priority_max: Some(0), ..all.clone() };
    let groups = [group("AA", [0, 0, 0, 0, 0, 1]), group("UA", [0, 1, 1, 0, 0, 0])];
    assert_eq!(history.depth_by(&urgent, carrier(), 100).await, groups);
    let to_ua = DepthQuery { metadata: [("to".to_owned(), "UA".to_owned())].into(), ..all.clone() };
    assert_eq!(history.depth_by(&to_ua, carrier(), 100).await, [group("UA", [0, 0, 1, 0, 0, 0])]);
    assert_eq!(history.depth_by(&to_ua, GroupBy::Queue, 100).await, [group(&a, [0, 0, 1, 0, 0, 0])]);
    assert_eq!(history.depth_by(&all, GroupBy::Key("none".to_owned()), 100).await, []);
    let none = DepthQuery::of(Queues::WithPrefix("no such queue".to_owned()));
    assert_eq!(history.depth_by(&none, GroupBy::Queue, 100).await, []);
}
