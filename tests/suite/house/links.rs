//! Every link in a document leads somewhere: relative links to a file that exists, anchors to a heading. Every decision
//! that a text cites by its number exists.

use super::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[test]
fn links_between_documents_lead_somewhere() {
    let workspace = Workspace::read();
    let texts: BTreeMap<PathBuf, String> = workspace
        .files(&["md"])
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("text");
            (path, text)
        })
        .collect();
    let mut dead = String::new();
    for (path, text) in &texts {
        let folder = path.parent().expect("a folder");
        for link in links(text).into_iter().filter(|link| !is_foreign(link)) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(&folder.join(file)) };
            if !target.exists() {
                dead += &format!("\n{}: no file {link}", workspace.shown(path));
            } else if !anchor.is_empty()
                && let Some(text) = texts.get(&target)
                && !anchors(text).contains(&anchor.to_owned())
            {
                dead += &format!("\n{}: no heading {link}", workspace.shown(path));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:{dead}\n");
}

#[test]
fn links_and_anchors_are_read_as_they_are_rendered() {
    let text = "# One `two`: three\n[a](b.md#c) ![i](<p q.svg>) `[no](no)` <img src=\"x.svg\">\n```\n[no](no)\n# no\n```\n\
                ## One `two`: three\n[r]: s.md\n";
    assert_eq!(links(text), ["p q.svg", "b.md#c", "x.svg", "s.md"]);
    assert_eq!(anchors(text), ["one-two-three", "one-two-three-1"]);
}

#[test]
fn cited_decisions_exist() {
    let workspace = Workspace::read();
    let folder = std::fs::read_dir(workspace.root.join("docs/decisions")).expect("docs/decisions").flatten();
    let number = |name: &str| name.split_once('-')?.0.parse::<u32>().ok();
    let existing: BTreeSet<u32> = folder.filter_map(|entry| number(&entry.file_name().to_string_lossy())).collect();
    let mut missing = String::new();
    for path in workspace.files(&["md", "rs", "lua"]) {
        let text = std::fs::read_to_string(&path).expect("text");
        for (index, line) in text.lines().enumerate() {
            for number in decisions(line).into_iter().filter(|number| !existing.contains(number)) {
                missing += &format!("\n{}:{}: {number:04}", workspace.shown(&path), index + 1);
            }
        }
    }
    assert!(missing.is_empty(), "decisions that do not exist:{missing}\n");
}

#[test]
fn decisions_are_cited_by_path_and_by_number() {
    assert_eq!(decisions("docs/decisions/0024, 0026; decision 68, [Decision 76](x)"), [24, 26, 68, 76]);
    assert_eq!(decisions("decisions 0024 and 0026, decisions/README.md, a decision"), [24, 26]);
    assert!(decisions("The decision of 2026-11-20 has 7 parts; 0024 alone is a number").is_empty());
}

/// The numbers of the decisions that a line cites, in their order.
fn decisions(line: &str) -> Vec<u32> {
    let lower = line.to_ascii_lowercase();
    let mut numbers = Vec::new();
    for (_, rest) in lower.match_indices("decision").map(|(at, word)| lower.split_at(at + word.len())) {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let Some(mut rest) = rest.strip_prefix([' ', '/']) else { continue };
        loop {
            rest = rest.trim_start_matches(['[', '(']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let Ok(number) = rest[..end].parse::<u32>() else { break };
            numbers.push(number);
            let after = &rest[end..];
            match [", ", " and ", " or "].into_iter().find_map(|between| after.strip_prefix(between)) {
                Some(next) => rest = next,
                None => break,
            }
        }
    }
    numbers
}

fn is_foreign(link: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme))
}

/// `a/../b` as `b`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                resolved.pop();
            }
            component => resolved.push(component),
        }
    }
    resolved
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of the links and images of a document.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        // What stands between backticks is shown as it is.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (begin, ends) in [("](<", ">"), ("](", ")"), ("src=\"", "\""), ("srcset=\"", "\""), ("href=\"", "\"")] {
            for rest in line.split(begin).skip(1) {
                let target = rest.split(ends).next().unwrap_or_default();
                let target = if begin == "](" { target.split(" \"").next().unwrap_or_default() } else { target };
                if !target.is_empty() && !target.starts_with('<') {
                    links.push(target.to_owned());
                }
            }
        }
        if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            links.push(target.trim().to_owned());
        }
    }
    links
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
            let again = seen.entry(anchor.clone()).and_modify(|n| *n += 1).or_default();
            if *again == 0 { anchor } else { format!("{anchor}-{again}") }
        })
        .collect()
}
