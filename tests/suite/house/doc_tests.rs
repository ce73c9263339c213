//! A crate with examples in its documentation has doc tests, and another one has none: rustdoc reads a whole crate to find that
//! there are none, while nothing else runs.

use super::workspace::Workspace;

/// What rustdoc does not compile.
const NO_RUST: [&str; 3] = ["text", "ignore", "console"];

fn has_examples(text: &str) -> bool {
    let docs =
        text.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("//!").or(line.strip_prefix("///")));
    let mut fences = docs.filter_map(|line| line.trim_start().strip_prefix("```"));
    // The first of two opens a block.
    while let Some(kind) = fences.next() {
        if !NO_RUST.contains(&kind) {
            return true;
        }
        fences.next();
    }
    false
}

#[test]
fn crates_with_examples_have_doc_tests_and_others_have_none() {
    let workspace = Workspace::read();
    let (files, mut wrong) = (workspace.files(&["rs"]), Vec::new());
    for member in workspace.members.iter().filter(|member| member.has_doc_tests.is_some()) {
        let sources = workspace.root.join(&member.folder).join("src");
        let texts = files.iter().filter(|file| file.starts_with(&sources));
        let has_examples =
            texts.map(|file| std::fs::read_to_string(file).expect("a file")).any(|text| has_examples(&text));
        if member.has_doc_tests != Some(has_examples) {
            wrong.push(format!("{}: has examples: {has_examples}; `doctest` of its [lib] differs", member.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        has_examples("/// ```\n/// f();\n/// ```") && !has_examples("//! ```text\n//! 7\n//! ```\nlet s = \"```\";")
    );
}
