//! A type name that would fit many things has at most one definition outside tests. A reader who has met it in one crate then does
//! not take it for another thing in the next.

use super::modules::{Modules, is_punct, without_tests};
use super::workspace::Workspace;
use proc_macro2::TokenTree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Names that meant several things in earlier versions. A new type gets a name that says which one it is: not `Place`, but
/// `TopicPartition`, `InsertionPoint` or `RoomPlace`. `words.rs` keeps out names that no type may have.
const GENERAL: &[&str] = &["Answer", "Counters", "Failure", "Known", "Link", "Place", "Reply", "Step"];

/// What precedes a name where it is defined. `as`: an import under another name gives that name a second meaning.
const DEFINES: &[&str] = &["struct", "enum", "union", "trait", "type", "as"];

/// The macro of `lua` that defines enums.
const DEFINING_MACRO: &str = "answers";

#[test]
fn a_general_name_is_defined_once() {
    let workspace = Workspace::read();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in product_files(&workspace) {
        let shown = workspace.shown(&file);
        for name in definitions(&workspace.text(&shown)) {
            places.entry(name).or_default().push(shown.clone());
        }
    }
    let mut answers = places.get("Answer").into_iter().flatten();
    assert!(answers.any(|file| file == "lua/src/constants.rs"), "the search finds what is known to be there");
    let twice: Vec<String> = GENERAL
        .iter()
        .filter_map(|name| places.get(*name).filter(|files| files.len() > 1).map(|files| (name, files)))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(twice.is_empty(), "names with several definitions; say which thing each is:\n{}\n", twice.join("\n"));
}

#[test]
fn definitions_are_found_in_functions_macros_and_imports_but_not_in_tests() {
    let text = "
        pub(crate) struct Place<'a>(&'a str);
        fn f() { enum Step { One } let step = Step::One; }
        use model::Refusal as Failure;
        answers! { /// A reply.
            Answer { Ok = \"OK\", } }
        fn g(known: Known) -> Reply { vec![Link { .. }] }
        #[cfg(test)] mod tests { enum Counters { One } }
        #[cfg(test)] #[derive(Debug)] struct Known;
        #[cfg(not(test))] type Link = u8;
        type Places = u8;
    ";
    assert_eq!(definitions(text), ["Place", "Step", "Failure", "Answer", "Link", "Places"]);
}

#[test]
fn files_of_tests_are_no_product_files() {
    let workspace = Workspace::read();
    let shown: Vec<String> = product_files(&workspace).iter().map(|file| workspace.shown(file)).collect();
    for file in ["client/src/worker/outcome.rs", "lab/bench/src/curve.rs", "cli/src/main.rs", "compact/src/set/walk.rs"]
    {
        assert!(shown.iter().any(|shown| shown == file), "{file}");
    }
    let is_test = |shown: &&String| shown.split('/').any(|part| ["tests", "tests.rs"].contains(&part));
    assert_eq!(shown.iter().find(is_test), None);
}

/// The files of all crates, without those of tests: of targets in a folder `tests`, and of modules under `#[cfg(test)]`.
pub(super) fn product_files(workspace: &Workspace) -> BTreeSet<PathBuf> {
    let roots = workspace.members.iter().flat_map(|member| &member.roots);
    let is_product = |root: &&PathBuf| !Path::new(&workspace.shown(root)).iter().any(|part| part == "tests");
    roots.filter(is_product).flat_map(|root| Modules::read(root).files().to_vec()).collect()
}

/// The names of the types, traits and renamed imports that a text defines outside tests.
fn definitions(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    add_definitions(&without_tests(text.parse().expect("Rust")), &mut names);
    names
}

fn add_definitions(tokens: &[TokenTree], names: &mut Vec<String>) {
    let mut rest = tokens;
    while let [token, after @ ..] = rest {
        rest = after;
        match (token, after) {
            (TokenTree::Ident(word), [TokenTree::Ident(name), ..]) if DEFINES.iter().any(|define| word == define) => {
                names.push(name.to_string());
            }
            (TokenTree::Ident(word), [bang, TokenTree::Group(body), ..])
                if word == DEFINING_MACRO && is_punct(Some(bang), '!') =>
            {
                let defined = body.stream().into_iter().filter_map(|token| match token {
                    TokenTree::Ident(name) => Some(name.to_string()),
                    _ => None,
                });
                names.extend(defined);
            }
            (TokenTree::Group(group), _) => add_definitions(&group.stream().into_iter().collect::<Vec<_>>(), names),
            _ => {}
        }
    }
}
