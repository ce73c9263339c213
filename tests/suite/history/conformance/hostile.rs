//! Text with a meaning in some query language, as ids, workers, reasons and metadata: a search for it finds exactly
//! itself (Q20).

use std::collections::BTreeMap;
use tallystone_indexer::SearchQuery;
use tallystone_tests::{HistoryFixture, HistoryUnderTest, Life, events_of, id};

over_history_stores!(
    q20_hostile_text_is_only_text,
    q20_a_part_of_a_reason_is_only_text,
    q20_pairs_with_separators_are_not_confused,
);

/// Text with a meaning for databases, search engines or shells. Each fits a metadata key.
const TEXTS: [&str; 50] = [
    "'",
    "\"",
    "''",
    "\\",
    "\\\\",
    "\\'",
    "%",
    "_",
    "%%",
    "a%b",
    "a_b",
    "axb",
    "*",
    "?",
    "a*b",
    "a?b",
    ".*",
    "a.b",
    ".",
    "..",
    "OR 1=1",
    "' OR '1'='1",
    "'; DROP TABLE current; --",
    "--",
    "/* x */",
    "NULL",
    "null",
    "true",
    "0",
    "00",
    "1e3",
    "AND",
    "a AND b",
    "NOT a",
    "+a -b",
    "a:b",
    "worker:w",
    "[a TO b]",
    "{\"a\":1}",
    "(a",
    "a~2",
    "a^3",
    "&&",
    "$1",
    "ä",
    "Ä",
    "a\u{308}",
    "ｆｕｌｌ",
    "👩‍✈️ 飛行機",
    " leading and trailing ",
];

fn searched(text: &str, reason: &str) -> bool {
    reason.to_ascii_lowercase().contains(&text.to_ascii_lowercase())
}

/// One message per text, which has it in every field.
fn lives<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> Vec<Life> {
    let life = |text: &&str| {
        let long = "ü".repeat(100);
        let tags = [(*text, *text), ("long", long.as_str()), ("text", *text)];
        history.life(text).tagged(&tags).enqueued().after(1).leased(text).after(1).released(text)
    };
    TEXTS.iter().map(life).collect()
}

async fn q20_hostile_text_is_only_text<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    history.record_and_show(&events_of(&lives(history))).await;
    for text in TEXTS {
        let pair = |key: &str| BTreeMap::from([(key.to_owned(), text.to_owned())]);
        for query in [
            SearchQuery { id: Some(id(text)), ..history.any() },
            SearchQuery { worker: text.to_owned(), ..history.any() },
            SearchQuery { metadata: pair("text"), ..history.any() },
            SearchQuery { metadata: pair(text), ..history.any() },
            SearchQuery { worker: text.to_owned(), metadata: pair(text), id: Some(id(text)), ..history.any() },
        ] {
            assert_eq!(history.ids(&query).await, [text], "{query:?}");
        }
        let trace = history.trace(text).await;
        assert_eq!(trace.transitions.len(), 3, "{text}");
        assert_eq!((trace.transitions[2].reason.as_str(), trace.transitions[1].worker.as_str()), (text, text));
        assert_eq!(trace.message.expect("a message").metadata["text"], text);
        assert_eq!(history.depth(&[(text, text)]).await, [0, 1, 0, 0, 0, 0], "{text}");
    }
}

async fn q20_a_part_of_a_reason_is_only_text<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut reasons: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    reasons.extend(TEXTS.iter().map(|text| format!("Before {text} AFTER")));
    reasons.push("x".repeat(255));
    reasons.push(format!("{}%", "Ü".repeat(127)));
    let life = |(number, reason): (usize, &String)| {
        history.life(&format!("m{number:03}")).enqueued().after(1).leased("w").after(1).released(reason)
    };
    let lives: Vec<Life> = reasons.iter().enumerate().map(life).collect();
    history.record_and_show(&events_of(&lives)).await;
    let mut parts = reasons.clone();
    parts.extend(
        ["before", "AfTeR", "e a", "ore \\ af", "drop table", "ü", "Ü%", "x%", "nothing has this"].map(str::to_owned),
    );
    for part in parts {
        let query = SearchQuery { reason_contains: part.clone(), ..history.any() };
        let mut found: Vec<String> = history.search(&query).await.into_iter().map(|message| message.reason).collect();
        let mut expected: Vec<String> = reasons.iter().filter(|reason| searched(&part, reason)).cloned().collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "with {part:?}");
    }
}

async fn q20_pairs_with_separators_are_not_confused<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let tags: [&[(&str, &str)]; 9] = [
        &[("a", "b=c")],
        &[("a=b", "c")],
        &[("a", "b"), ("b", "c")],
        &[("a", "b"), ("c", "b=c")],
        &[("a", "b,c=d")],
        &[("a", "b"), ("c", "d")],
        &[("a.b", "c")],
        &[("a", ".b"), ("b", "a")],
        &[("=", "="), ("==", "="), ("\u{a0}", "/"), (":", "a:b")],
    ];
    let lives: Vec<Life> = tags
        .iter()
        .enumerate()
        .map(|(number, tags)| history.life(&format!("m{number}")).tagged(tags).enqueued())
        .collect();
    history.record_and_show(&events_of(&lives)).await;
    let all: Vec<(&str, &str)> = tags.concat();
    for wanted in tags.iter().map(|tags| tags.to_vec()).chain(all.into_iter().map(|pair| vec![pair])) {
        let metadata = wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let has = |tags: &&[(&str, &str)]| wanted.iter().all(|pair| tags.contains(pair));
        let mut expected: Vec<String> =
            tags.iter().enumerate().filter(|(_, tags)| has(tags)).map(|(number, _)| format!("m{number}")).collect();
        let mut found = history.ids(&SearchQuery { metadata, ..history.any() }).await;
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{wanted:?}");
        assert_eq!(history.depth(&wanted).await, [0, expected.len() as u64, 0, 0, 0, 0], "{wanted:?}");
    }
}
