//! Pages of a search: Q20.

use std::collections::BTreeMap;
use tallystone_indexer::{SearchPosition, SearchQuery};
use tallystone_model::State;
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(q20_pages_neither_repeat_nor_omit, q20_pages_neither_repeat_nor_omit_during_changes,);

const MESSAGES: u64 = 40;

/// Messages, five of which are enqueued in the same millisecond; every second has the pair.
fn lives<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> Vec<Life> {
    let life = |number: u64| {
        let tags: &[(&str, &str)] = if number.is_multiple_of(2) { &[("half", "even")] } else { &[] };
        let life = history.life(&format!("m{number:02}")).tagged(tags).at(BEGIN_MS + number / 5);
        match number % 3 {
            0 => life.enqueued(),
            1 => life.enqueued().leased("w"),
            _ => life.enqueued().canceled("a reason"),
        }
    };
    (0..MESSAGES).map(life).collect()
}

fn walks<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> Vec<SearchQuery> {
    let even = BTreeMap::from([("half".to_owned(), "even".to_owned())]);
    vec![
        history.any(),
        SearchQuery { include_gone: true, ..history.any() },
        SearchQuery { metadata: even.clone(), ..history.any() },
        SearchQuery { metadata: even, states: [State::Pending, State::Running].into(), ..history.any() },
        SearchQuery { states: [State::Canceled, State::Running].into(), ..history.any() },
        SearchQuery { reason_contains: "A".to_owned(), ..history.any() },
        SearchQuery { changed_from_ms: Some(BEGIN_MS + 2), changed_to_ms: Some(BEGIN_MS + 6), ..history.any() },
    ]
}

async fn q20_pages_neither_repeat_nor_omit<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    history.record_and_show(&events_of(&lives(history))).await;
    for query in walks(history) {
        let all = history.search(&query).await;
        assert!(all.len() >= 5, "{query:?} finds too few messages: {all:?}");
        let positions: Vec<_> = all.iter().map(SearchPosition::of).collect();
        let is_after =
            |a: &SearchPosition, b: &SearchPosition| (b.enqueued_at_ms, b.sequence) < (a.enqueued_at_ms, a.sequence);
        assert!(positions.is_sorted_by(is_after), "{query:?} is out of order: {positions:?}");
        for limit in [1, 3, 4, all.len(), 1_000] {
            assert_eq!(history.pages(&SearchQuery { limit, ..query.clone() }).await, all, "{limit} per page");
        }
    }
}

async fn q20_pages_neither_repeat_nor_omit_during_changes<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = lives(history);
    history.record_and_show(&events_of(&lives)).await;
    let mut query = SearchQuery { limit: 4, ..history.any() };
    let mut seen: Vec<String> = Vec::new();
    for round in 0.. {
        let page = history.search(&query).await;
        seen.extend(page.iter().map(|message| message.id.clone()));
        let Some(last) = page.last() else { break };
        query.after = Some(SearchPosition::of(last));
        // New messages at the front; every tenth of the old ones changes, on whichever page it is.
        let mut changes = Vec::new();
        changes.push(history.life(&format!("new{round}")).at(BEGIN_MS + 1_000 + round).enqueued());
        for life in lives.iter_mut().skip(round as usize % 10).step_by(10) {
            *life = life.clone().after(100_000);
            if life.last().event.to == Some(State::Canceled) {
                continue;
            }
            *life = life.clone().reprioritized(round as i64);
            changes.push(life.clone());
        }
        history.record_and_show(&events_of(&changes)).await;
        assert!(round < MESSAGES, "it ends");
    }
    let mut expected: Vec<String> = lives.iter().map(|life| life.last().event.id.to_string()).collect();
    assert_eq!(seen.len(), expected.len(), "{seen:?}");
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}
