//! The rows of docs/spec.md: each that is implemented has a test that carries its id, and each id that is cited can be
//! looked up there.

use super::workspace::Workspace;
use std::collections::BTreeMap;
use std::path::Path;

/// What a row's status may be. The first two need a test.
const STATUSES: [&str; 4] = ["done", "partly", "figure", "planned"];

#[test]
fn every_implemented_row_has_a_test_with_its_id() {
    let workspace = Workspace::read();
    let text: String = workspace.files(&["rs"]).iter().map(|path| read(path)).collect();
    let specification = read(&workspace.root.join("docs/spec.md"));
    let rows = rows(&specification);
    assert!(rows.len() > 30, "only {} rows were read", rows.len());
    let unknown: Vec<_> = rows.iter().filter(|(_, status)| !STATUSES.contains(status)).collect();
    assert!(unknown.is_empty(), "statuses that docs/spec.md does not define: {unknown:?}");
    let tests = tests(&text);
    let has_test = |id: &str| {
        let (first, later) = (format!("{}_", id.to_lowercase()), format!("_{}_", id.to_lowercase()));
        tests.iter().any(|name| name.starts_with(&first) || name.contains(&later))
    };
    let implemented = rows.iter().filter(|(_, status)| STATUSES[..2].contains(status)).map(|(id, _)| id);
    let missing: Vec<_> = implemented.filter(|id| !has_test(id)).collect();
    assert!(missing.is_empty(), "implemented rows without a test: {missing:?}");
}

/// The macros that make a test of each function that they list, as they begin.
const TEST_LISTS: [&str; 3] = ["over_each_store!(", "over_history_stores!(", "on_own_and_on_shared_streams! {"];

/// The names of the tests in a text: the functions with an attribute `#[test]` or `#[tokio::test]`, and those that
/// [`TEST_LISTS`] have.
fn tests(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
            names.extend(line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next()));
        }
    }
    for begin in TEST_LISTS {
        for list in text.split(begin).skip(1).filter_map(|rest| rest.split([')', '}']).next()) {
            names.extend(list.split([',', ' ', '\n']).filter(|name| !name.is_empty()));
        }
    }
    names
}

#[test]
fn only_functions_with_a_test_attribute_are_tests() {
    let text = "fn a() {}\n#[test]\nfn b() {}\n#[tokio::test]\n#[ignore]\n// Why.\nasync fn c() {}\nfn d_n3_e() {}\n\
                over_each_store!(\n    f,\n    g,\n);\n";
    assert_eq!(tests(text), ["b", "c", "f", "g"]);
}

#[test]
fn every_cited_row_is_in_the_specification() {
    let workspace = Workspace::read();
    let specification = read(&workspace.root.join("docs/spec.md"));
    let defined = rows(&specification);
    let mut unknown = String::new();
    for path in workspace.files(&["rs", "lua", "md", "proto"]) {
        let text = read(&path);
        let lines = text.lines().map(|line| cites(line, &path));
        for (line, id) in (1..).zip(lines).flat_map(|(line, text)| ids(text).into_iter().map(move |id| (line, id))) {
            if !defined.contains_key(id) {
                unknown += &format!("\n{}:{line}: {id}", workspace.shown(&path));
            }
        }
    }
    assert!(unknown.is_empty(), "rows that docs/spec.md does not have:{unknown}\n");
}

/// The part of a line that may cite a row: in code its comment.
fn cites<'a>(line: &'a str, path: &Path) -> &'a str {
    let begin = match path.extension().and_then(|extension| extension.to_str()) {
        Some("lua") => line.find("--"),
        Some("md") => Some(0),
        _ => line.find("//"),
    };
    begin.map_or("", |begin| &line[begin..])
}

#[test]
fn ids_are_whole_words() {
    assert_eq!(ids("| Q10 | see N3, not AQ1, Q123, Q or 0xQ4_"), ["Q10", "N3"]);
}

/// The rows of the specification with their status: `| Q10 | done | …`.
fn rows(specification: &str) -> BTreeMap<&str, &str> {
    let rows = specification.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let id = cells.next().filter(|cell| is_id(cell))?;
        Some((id, cells.next()?))
    });
    rows.collect()
}

/// The row ids in a line: Q10, N3.
fn ids(line: &str) -> Vec<&str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| is_id(word)).collect()
}

fn is_id(word: &str) -> bool {
    let (letter, number) = word.split_at_checked(1).unwrap_or_default();
    "QNSOXVWL".contains(letter)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|digit| digit.is_ascii_digit())
        && !number.starts_with('0')
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
