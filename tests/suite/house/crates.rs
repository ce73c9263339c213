//! Who may use whom: the arrows of ARCHITECTURE.md, its table of crates, and the size of the top level.

use super::MAY_USE;
use super::workspace::Workspace;
use std::collections::BTreeSet;

/// A page that explains itself lists no more.
const TOP_LEVEL_FOLDERS_MAX: usize = 17;

#[test]
fn arrows_between_crates_only_run_down() {
    let workspace = Workspace::read();
    for (name, may_use) in MAY_USE {
        let member = workspace.members.iter().find(|member| member.name == *name);
        let member = member.unwrap_or_else(|| panic!("{name} is not in the workspace"));
        let wrong: Vec<_> = member.uses.iter().filter(|used| !may_use.contains(&used.as_str())).collect();
        assert!(wrong.is_empty(), "{name} may not use {wrong:?}");
    }
    let unlisted = workspace.members.iter().map(|member| member.name.as_str());
    let unlisted: Vec<_> =
        unlisted.filter(|name| !USES_ALL.contains(name) && !MAY_USE.iter().any(|(listed, _)| listed == name)).collect();
    assert!(unlisted.is_empty(), "say in MAY_USE what {unlisted:?} may use");
}

/// They put everything together, so every arrow from them is allowed.
const USES_ALL: &[&str] = &["tallystone", "tallystone-tests"];

#[test]
fn the_architecture_lists_exactly_the_crates() {
    let workspace = Workspace::read();
    let text = std::fs::read_to_string(workspace.root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split("\n## ").find(|section| section.starts_with("Crates\n")).expect("a section Crates");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<&str> = rows.map(|(folder, _)| folder).collect();
    let actual: BTreeSet<&str> = workspace.members.iter().map(|member| member.folder.as_str()).collect();
    let missing: Vec<_> = actual.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&actual).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "the table lacks {missing:?} and lists {gone:?}, which are no crates"
    );
}

#[test]
fn the_top_level_stays_a_page() {
    let root = Workspace::read().root;
    let entries = std::fs::read_dir(root).expect("the workspace").flatten();
    let folders = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().display().to_string());
    let folders: BTreeSet<String> = folders.filter(|name| !name.starts_with('.') && name != "target").collect();
    assert!(folders.len() <= TOP_LEVEL_FOLDERS_MAX, "{} folders: {folders:?}", folders.len());
}
