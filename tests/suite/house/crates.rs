//! Which crate may use which: the arrows of ARCHITECTURE.md, its table of crates, and the size of the top level.

use super::workspace::Workspace;
use std::collections::BTreeSet;

/// A page that explains itself lists no more (docs/decisions/0024).
const TOP_LEVEL_FOLDERS_MAX: usize = 17;

/// A row of the table of crates in ARCHITECTURE.md: `| folder | what lives there | may use |`.
struct Row {
    folder: String,
    /// The last parts of the folders of the crates that it may use; none if it may use all above it.
    may_use: Option<Vec<String>>,
}

fn table(workspace: &Workspace) -> Vec<Row> {
    let text = std::fs::read_to_string(workspace.root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Crates\n")).expect("a section Crates");
    let rows = section.lines().filter_map(|line| {
        let (folder, rest) = line.strip_prefix("| `")?.split_once('`')?;
        let names = rest.trim_end_matches(['|', ' ']).rsplit('|').next()?.trim();
        let may_use = match names {
            "all" => None,
            "–" => Some(Vec::new()),
            names => Some(names.split(' ').map(str::to_owned).collect()),
        };
        Some(Row { folder: folder.to_owned(), may_use })
    });
    rows.collect()
}

fn last_part(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or_default()
}

#[test]
fn the_architecture_lists_exactly_the_crates() {
    let workspace = Workspace::read();
    let table = table(&workspace);
    let listed: BTreeSet<&str> = table.iter().map(|row| row.folder.as_str()).collect();
    let actual: BTreeSet<&str> = workspace.members.iter().map(|member| member.folder.as_str()).collect();
    let missing: Vec<_> = actual.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&actual).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "the table lacks {missing:?} and lists {gone:?}, which are no crates"
    );
    assert_eq!(listed.len(), table.len(), "each crate has one row");
}

#[test]
fn arrows_between_crates_are_those_of_the_architecture_and_only_run_up_its_table() {
    let workspace = Workspace::read();
    let table = table(&workspace);
    let folder_of = |name: &str| {
        let member = workspace.members.iter().find(|member| member.name == name).expect("a member");
        member.folder.as_str()
    };
    let mut wrong = String::new();
    for (index, row) in table.iter().enumerate() {
        let Some(member) = workspace.members.iter().find(|member| member.folder == row.folder) else { continue };
        for used in member.uses.iter().map(|name| folder_of(name)) {
            let may_use = row.may_use.as_ref();
            if may_use.is_some_and(|names| !names.iter().any(|name| name == last_part(used))) {
                wrong += &format!("\n{} uses {used}, which its row does not allow", row.folder);
            }
            if !table[..index].iter().any(|above| above.folder == used) {
                wrong += &format!("\n{} uses {used}, which is not above it in the table", row.folder);
            }
        }
        // What a row allows is used: the table is a map, not a plan.
        for name in row.may_use.iter().flatten() {
            if !member.uses.iter().any(|used| last_part(folder_of(used)) == name) {
                wrong += &format!("\n{} does not use {name}, which its row lists", row.folder);
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that differ from ARCHITECTURE.md:{wrong}\n");
}

#[test]
fn the_top_level_stays_a_page() {
    let root = Workspace::read().root;
    let entries = std::fs::read_dir(root).expect("the workspace").flatten();
    let folders = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().display().to_string());
    let folders: BTreeSet<String> = folders.filter(|name| !name.starts_with('.') && name != "target").collect();
    assert!(folders.len() <= TOP_LEVEL_FOLDERS_MAX, "{} folders: {folders:?}", folders.len());
}
