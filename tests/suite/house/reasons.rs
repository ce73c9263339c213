//! The reasons of refusals that every port has: a client finds each in the errors of the protocol files.

use super::workspace::Workspace;
use std::collections::BTreeSet;

/// The protocol files whose heads list errors.
const PROTOS: [&str; 3] = ["queue", "counter", "history"];

/// Reasons that one service alone has. Streams of requests are calls of the queue, and only the counters' protocol file lists the errors of
/// HTTP. Calls of history end soon, so no credential is withdrawn during one.
const OF_SOME: &[(&str, &[&str])] = &[
    ("TOO_MANY_STREAMS", &["queue"]),
    ("WITHDRAWN", &["queue", "counter"]),
    ("BAD_CONTENT_TYPE", &["counter"]),
    ("BAD_HOST", &["counter"]),
    ("BAD_ORIGIN", &["counter"]),
    ("METHOD_NOT_ALLOWED", &["counter"]),
    ("PATH_NOT_FOUND", &["counter"]),
];

/// The value of a header, no reason.
const OTHER_WORD: &str = "DENY";

/// A reason has at least so many letters. Shorter words are parts of keys and of names in certificates.
const LETTERS_MIN: usize = 4;

#[test]
fn the_protocol_files_list_every_reason_of_a_port() {
    let workspace = Workspace::read();
    let reasons = reasons(&workspace);
    assert!(reasons.contains("EXPIRED") && reasons.len() > 15, "only {reasons:?} were found");
    for (reason, _) in OF_SOME {
        assert!(reasons.contains(*reason), "no port has {reason} any more");
    }
    for proto in PROTOS {
        let text = workspace.text(&format!("proto/proto/tallystone/{proto}/v1/{proto}.proto"));
        let (head, _) = text.split_once("\nsyntax = ").expect("a head");
        let listed: BTreeSet<&str> = head.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        for reason in &reasons {
            let some = OF_SOME.iter().find(|(of_some, _)| of_some == reason);
            if some.is_none_or(|(_, protos)| protos.contains(&proto)) {
                assert!(listed.contains(reason.as_str()), "the errors of {proto}.proto lack {reason}");
            }
        }
    }
}

/// The words in capitals that the code of the ports has as texts, its tests excepted.
fn reasons(workspace: &Workspace) -> BTreeSet<String> {
    let (mut reasons, folder) = (BTreeSet::new(), workspace.folder_of("tallystone-serving"));
    for path in workspace.files(&["rs"]) {
        let shown = workspace.shown(&path);
        if !shown.starts_with(&folder) || shown.contains("tests") {
            continue;
        }
        let text = workspace.text(&shown);
        let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        let texts = code.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        reasons.extend(texts.filter(|text| is_reason(text)).map(str::to_owned));
    }
    reasons
}

fn is_reason(text: &str) -> bool {
    text.len() >= LETTERS_MIN && text.chars().all(|c| c.is_ascii_uppercase() || c == '_') && text != OTHER_WORD
}
