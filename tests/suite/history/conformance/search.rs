//! Messages by their fields: Q20.

use tallystone_indexer::{Queues, SearchQuery, fold};
use tallystone_model::State;
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of, id};

over_history_stores!(
    q20_a_search_by_every_field,
    q20_a_message_is_found_by_its_state_after_the_newest_transition,
    q20_messages_that_are_gone_are_found_on_request,
    q20_a_span_of_time_is_half_open,
    q20_extreme_priorities_and_times_are_kept,
    q20_a_search_over_all_queues,
);

fn pairs(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Seven messages, enqueued one second after the other, "a" first.
fn seven<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> Vec<Life> {
    let life =
        |id: &str, second: u64, tags: &[(&str, &str)]| history.life(id).tagged(tags).at(BEGIN_MS + second * 1_000);
    vec![
        life("a", 1, &[("carrier", "UA"), ("to", "IAH")]).enqueued(),
        life("b", 2, &[("carrier", "UA")]).enqueued_for(60_000),
        life("c", 3, &[("carrier", "AA"), ("to", "IAH")]).enqueued().after(100).leased("gate-1"),
        life("d", 4, &[("carrier", "AA")]).enqueued().after(100).leased("gate-1").after(200).released("No fuel at A3"),
        life("e", 5, &[]).enqueued().after(100).leased("gate-2").after(300).completed(),
        life("f", 6, &[("to", "IAH")]).enqueued().leased("gate-2").after(400).errored("no FUEL"),
        life("g", 7, &[("carrier", "UA")]).enqueued().after(10_000).canceled("weather"),
    ]
}

async fn q20_a_search_by_every_field<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let lives = seven(history);
    history.record_and_show(&events_of(&lives)).await;
    let any = || history.any();
    let states = |of: &[State]| SearchQuery { states: of.iter().copied().collect(), ..any() };
    let tagged = |of: &[(&str, &str)]| SearchQuery { metadata: pairs(of), ..any() };
    let worker = |worker: &str| SearchQuery { worker: worker.to_owned(), ..any() };
    let reason = |part: &str| SearchQuery { reason_contains: part.to_owned(), ..any() };
    let since = |second: u64| SearchQuery { changed_from_ms: Some(BEGIN_MS + second * 1_000), ..any() };
    let before = |second: u64| SearchQuery { changed_to_ms: Some(BEGIN_MS + second * 1_000), ..any() };
    let (ua, iah) = (("carrier", "UA"), ("to", "IAH"));
    let cases = [
        (any(), "gfedcba"),
        (SearchQuery { limit: 3, ..any() }, "gfe"),
        (states(&[State::Pending]), "da"),
        (states(&[State::Errored, State::Invisible, State::Running]), "fcb"),
        (states(&State::ALL), "gfedcba"),
        (tagged(&[ua]), "gba"),
        (tagged(&[iah]), "fca"),
        (tagged(&[ua, iah]), "a"),
        (tagged(&[("carrier", "ua")]), ""),
        (tagged(&[("carrier", "IAH")]), ""),
        (tagged(&[("car", "UA")]), ""),
        (tagged(&[ua, ("none", "x")]), ""),
        (worker("gate-1"), "dc"),
        (worker("gate"), ""),
        (worker("Gate-1"), ""),
        (reason("fuel"), "fd"),
        (reason("NO FUEL"), "fd"),
        (reason("fuel at"), "d"),
        (reason("fuel  at"), ""),
        (reason("weather"), "g"),
        (since(6), "gf"),
        (before(3), "ba"),
        (SearchQuery { changed_to_ms: Some(BEGIN_MS + 6_000), ..since(3) }, "edc"),
        (SearchQuery { id: Some(id("d")), ..any() }, "d"),
        (SearchQuery { id: Some(id("D")), ..any() }, ""),
        // Several conditions.
        (SearchQuery { states: [State::Pending].into(), ..tagged(&[ua]) }, "a"),
        (SearchQuery { states: [State::Canceled].into(), ..since(6) }, "g"),
        (SearchQuery { worker: "gate-1".to_owned(), ..reason("fuel") }, "d"),
        (SearchQuery { worker: "gate-2".to_owned(), ..tagged(&[iah]) }, "f"),
        (SearchQuery { id: Some(id("c")), states: [State::Running].into(), ..tagged(&[iah]) }, "c"),
        (SearchQuery { id: Some(id("c")), states: [State::Pending].into(), ..any() }, ""),
        (SearchQuery { id: Some(id("c")), ..tagged(&[ua]) }, ""),
        (SearchQuery { limit: 1, changed_from_ms: Some(BEGIN_MS), ..tagged(&[iah]) }, "f"),
        (SearchQuery { limit: 2, worker: "gate-2".to_owned(), states: [State::Errored].into(), ..reason("u") }, "f"),
    ];
    for (query, expected) in cases {
        let expected: Vec<String> = expected.chars().map(String::from).collect();
        assert_eq!(history.ids(&query).await, expected, "{query:?}");
        let with_gone = SearchQuery { include_gone: true, ..query };
        assert_eq!(history.ids(&with_gone).await, expected, "nothing is gone: {with_gone:?}");
    }
    let expected: Vec<_> = lives.iter().rev().map(|life| fold::message(life.last())).collect();
    assert_eq!(history.search(&any()).await, expected, "every field of every message");
}

async fn q20_a_message_is_found_by_its_state_after_the_newest_transition<S: HistoryUnderTest>(
    history: &HistoryFixture<S>,
) {
    let life = history.life("m").enqueued().after(1).leased("w1").after(1).released("first");
    history.record_and_show(&life.events()).await;
    let pending = SearchQuery { states: [State::Pending].into(), ..history.any() };
    let running = SearchQuery { states: [State::Running].into(), ..history.any() };
    let first = SearchQuery { reason_contains: "FIRST".to_owned(), ..history.any() };
    let by_w1 = SearchQuery { worker: "w1".to_owned(), ..history.any() };
    for (query, found) in [(&pending, 1), (&running, 0), (&first, 1), (&by_w1, 1)] {
        assert_eq!(history.ids(query).await.len(), found, "{query:?}");
    }
    let life = life.after(1).leased("w2");
    history.record_and_show(&life.events()).await;
    for (query, found) in [(&pending, 0), (&running, 1), (&first, 1), (&by_w1, 0)] {
        assert_eq!(history.ids(query).await.len(), found, "then {query:?}");
    }
    let life = life.after(1).released("second");
    history.record_and_show(&life.events()).await;
    for (query, found) in [(&pending, 1), (&running, 0), (&first, 0), (&by_w1, 0)] {
        assert_eq!(history.ids(query).await.len(), found, "at last {query:?}");
    }
    assert_eq!(history.search(&history.any()).await, [fold::message(life.last())]);
}

async fn q20_messages_that_are_gone_are_found_on_request<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let tags = [("carrier", "UA")];
    let life = |id: &str, second: u64| history.life(id).tagged(&tags).at(BEGIN_MS + second * 1_000).enqueued();
    let gone = life("gone", 1).leased("w").after(1).errored("broken").after(5_000).collected();
    let ended = life("ended", 2).leased("w").after(1).errored("broken");
    history.record_and_show(&events_of(&[gone.clone(), ended.clone()])).await;
    let narrow = [
        history.any(),
        SearchQuery { id: Some(id("gone")), ..history.any() },
        SearchQuery { states: [State::Errored].into(), ..history.any() },
        SearchQuery { metadata: pairs(&tags), ..history.any() },
        SearchQuery { worker: "w".to_owned(), reason_contains: "broke".to_owned(), ..history.any() },
        SearchQuery { changed_from_ms: Some(BEGIN_MS + 1_000), ..history.any() },
    ];
    for query in narrow {
        assert!(!history.ids(&query).await.contains(&"gone".to_owned()), "{query:?}");
        let with_gone = SearchQuery { include_gone: true, ..query };
        let found = history.search(&with_gone).await;
        let found = found.iter().find(|message| message.id == "gone");
        assert_eq!(found, Some(&fold::message(gone.last())), "{with_gone:?}");
    }
    let found = history.search(&SearchQuery { include_gone: true, ..history.any() }).await;
    assert_eq!(found, [fold::message(ended.last()), fold::message(gone.last())]);
    assert_eq!((found[1].gone, found[1].state), (true, State::Errored as i32), "the last one");
}

async fn q20_a_span_of_time_is_half_open<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = Vec::new();
    for ms in 0..4 {
        lives.push(history.life(&format!("m{ms}")).at(BEGIN_MS).enqueued().after(1_000 + ms).leased("w"));
    }
    history.record_and_show(&events_of(&lives)).await;
    let found = async |from_ms: Option<u64>, to_ms: Option<u64>| {
        let query = SearchQuery { changed_from_ms: from_ms, changed_to_ms: to_ms, ..history.any() };
        let mut ids = history.ids(&query).await;
        ids.sort();
        ids.concat()
    };
    let at = |ms: u64| Some(BEGIN_MS + 1_000 + ms);
    assert_eq!(found(at(1), at(3)).await, "m1m2");
    assert_eq!(found(at(1), None).await, "m1m2m3");
    assert_eq!(found(None, at(1)).await, "m0");
    assert_eq!(found(at(2), at(2)).await, "");
    assert_eq!(found(at(3), at(1)).await, "");
    assert_eq!(found(Some(0), Some(i64::MAX as u64)).await, "m0m1m2m3");
    assert_eq!(found(Some(i64::MAX as u64), None).await, "");
    assert_eq!(found(None, Some(0)).await, "");
}

async fn q20_extreme_priorities_and_times_are_kept<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = Vec::new();
    for (number, priority) in [i64::MIN, i64::MIN + 1, -1, (1 << 53) + 1, i64::MAX].into_iter().enumerate() {
        lives.push(history.life(&format!("m{number}")).priority(priority).at(1_000 * number as u64).enqueued());
    }
    history.record_and_show(&events_of(&lives)).await;
    let expected: Vec<_> = lives.iter().rev().map(|life| fold::message(life.last())).collect();
    assert_eq!(history.search(&history.any()).await, expected);
    for life in lives {
        let trace = history.trace(life.last().event.id.as_str()).await;
        assert_eq!(trace.transitions, [fold::transition(&life.last().event)]);
    }
}

async fn q20_a_search_over_all_queues<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    // Messages whose positions differ only in queue and shard.
    let tags = [("search", "over all queues")];
    let (first, second) = (history.another_queue(), history.another_queue());
    let life = |queue, id: &str, shard: u16| Life::new(queue, id).tagged(&tags).shard(shard).sequence(7).enqueued();
    let mut lives = vec![life(&second, "e", 0), life(&first, "d", 2), life(&first, "c", 1), life(&second, "f", 10)];
    lives.push(Life::new(&second, "b").tagged(&tags).sequence(8).enqueued());
    lives.push(Life::new(&first, "a").tagged(&tags).at(BEGIN_MS + 1).sequence(1).enqueued());
    lives.push(Life::new(&first, "other").enqueued());
    history.record_and_show(&events_of(&lives)).await;
    for limit in [1, 2, 3, 100] {
        let query = SearchQuery { queues: Queues::default(), metadata: pairs(&tags), limit, ..history.any() };
        let ids: Vec<String> = history.pages(&query).await.into_iter().map(|message| message.id).collect();
        assert_eq!(ids.concat(), "abcdef", "{limit} per page");
    }
}
