//! Words and phrases that earlier versions of this project used where the field has a term. They stay out of code,
//! names, comments and documents.

use super::workspace::Workspace;

/// What to avoid, and what to write instead. A phrase matches whole words, in names too: `told` finds `is_told` and
/// `ToldOnce`, not `stold`.
const FORBIDDEN: &[(&str, &str)] = &[
    ("told", "notify, notified; set, configured; say what acts"),
    ("tell", "notify, report, return"),
    ("tells", "notifies, reports, returns"),
    ("telling", "notifying"),
    ("a look", "wake-up, poll, check"),
    ("the look", "wake-up, poll, check"),
    ("each look", "wake-up, poll, check"),
    ("every look", "wake-up, poll, check"),
    ("one look", "wake-up, poll, check"),
    ("look at", "read, inspect"),
    ("looks at", "reads, checks"),
    ("looked at", "read, checked"),
    ("look after", "maintain, watch"),
    ("looks after", "maintains, watches"),
    ("ask", "request, call, query"),
    ("asks", "requests, calls, queries"),
    ("asked", "requested, called"),
    ("asker", "caller, waiter"),
    ("asking", "requesting"),
    ("believed", "cached"),
    ("believes", "caches, assumes"),
    ("no news", "stale, ignored"),
    ("beside", "with, next to; background task"),
    ("besides", "also, in addition"),
    ("apart", "separate, except; dedicated thread"),
    ("suited", "preflight"),
    ("granule", "window, time window"),
    ("granules", "windows, time windows"),
    ("relaid", "layout changed"),
    ("is what holds", "a direct sentence"),
    ("otherwise than", "differently from, changed since"),
    ("otherwise so", "a direct sentence"),
    ("of its own", "its own …, separate"),
    ("of their own", "their own …, separate"),
    ("of our own", "our own …"),
    ("whoever", "the caller, the user, the process that"),
    ("whom", "a direct sentence: say which process"),
    ("therein", "in it"),
    ("in hand", "held, pending"),
    ("nobody", "no caller, no process; say which"),
    ("somebody", "a caller, a process; say which"),
    ("anew", "again"),
    ("the turn", "leader lease"),
    ("a turn", "leader lease"),
    ("takes turns", "leader lease"),
    ("is what is", "a direct sentence"),
    ("what is done", "a direct sentence"),
    ("goes by", "passes, uses"),
    ("all the same", "still, regardless"),
    ("by now", "already, so far"),
    ("be it", "whether … or …"),
    ("was away", "was unavailable"),
    ("were away", "were unavailable"),
    ("come again", "retry, call again"),
    ("hear of", "learn, read, get"),
    ("hears of", "learns, reads, gets"),
    ("heard of", "knows; was notified of"),
    ("who is to", "a direct sentence: which process must"),
    ("what becomes of", "what happens to"),
];

/// What is read. "": files without an extension, such as `test`.
const EXTENSIONS: &[&str] = &[
    "", "rs", "lua", "md", "proto", "sh", "py", "mjs", "js", "css", "c", "html", "sql", "toml", "yaml", "yml", "json",
    "json5", "txt", "service",
];

/// What may contain them: this list, the Unix user `nobody`, the redirections of Redis Cluster, and the text of the licence.
const EXCEPTED: &[&str] = &[
    "tests/suite/house/words.rs",
    "infra/local/src/elasticsearch.rs",
    "infra/link/src/error.rs",
    "lab/simulator/src/episode/faults.rs",
    "tests/suite/compact/load.rs",
    "LICENSE",
    "client/LICENSE",
    "proto/LICENSE",
];

/// Lines shown when the test fails.
const SHOWN_MAX: usize = 60;

#[test]
fn forbidden_words_stay_out() {
    let workspace = Workspace::read();
    let mut found = Vec::new();
    for path in workspace.files(EXTENSIONS) {
        let shown = workspace.shown(&path);
        if EXCEPTED.iter().any(|prefix| shown.starts_with(prefix)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
        for (number, phrase, instead) in forbidden_in(&text) {
            found.push(format!("{shown}:{number}: \"{phrase}\"; write: {instead}"));
        }
    }
    assert!(
        found.is_empty(),
        "{} uses of words that this project avoids:\n{}\n",
        found.len(),
        found[..found.len().min(SHOWN_MAX)].join("\n")
    );
}

#[test]
fn scripts_tables_and_alerts_are_read() {
    let workspace = Workspace::read();
    let read: Vec<String> = workspace.files(EXTENSIONS).iter().map(|path| workspace.shown(path)).collect();
    for file in ["test", "quickstart", ".ci/run", "deploy/prometheus/alerts.yml", "tests/suite/scripts/tables.txt"] {
        assert!(read.iter().any(|read| read == file), "{file}");
    }
}

#[test]
fn words_are_found_in_names_and_across_lines() {
    let text =
        "fn is_told() {}\nstruct AskedOnce;\n/// It is what\n/// holds. Nobody else.\nlet stolder = OTHERWISE_THAN;";
    let found: Vec<(usize, &str)> = forbidden_in(text).into_iter().map(|(line, phrase, _)| (line, phrase)).collect();
    let expected = [(1, "told"), (2, "asked"), (3, "is what holds"), (4, "nobody"), (5, "otherwise than")];
    assert_eq!(found, expected);
    assert!(forbidden_in("task, basket, Tollgate, a lookup, turning").is_empty());
}

/// The forbidden phrases of a text, with the number of the line in which each begins.
fn forbidden_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words: Vec<(usize, String)> = words(text);
    let mut found = Vec::new();
    for (index, (line, first)) in words.iter().enumerate() {
        // The first bytes differ almost always.
        for (phrase, instead) in FORBIDDEN.iter().filter(|(phrase, _)| phrase.starts_with(first.as_str())) {
            let wanted = phrase.split(' ');
            let here = words[index..].iter().map(|(_, word)| word.as_str());
            if here.take(wanted.clone().count()).eq(wanted) {
                found.push((*line, *phrase, *instead));
            }
        }
    }
    found
}

/// The words of a text in lower case, names split at underscores and capitals, each with the number of its line.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut before = ' ';
        let mut begins = true;
        for c in line.chars() {
            if !c.is_alphabetic() {
                begins = true;
            } else {
                if begins || (c.is_uppercase() && before.is_lowercase()) {
                    words.push((number, String::new()));
                }
                begins = false;
                if let Some((_, word)) = words.last_mut() {
                    word.extend(c.to_lowercase());
                }
            }
            before = c;
        }
    }
    words
}
