//! The drawing of the state machine in `docs/states.md`, made from the one table.

use crate::state::{ARROWS, State};

/// The page: a Mermaid diagram and a table of every arrow.
pub fn page() -> String {
    let name = |state: Option<State>| state.map_or("[*]", State::name);
    let mut page = String::from(
        "# States of a message\nMade from the table in `model/src/state.rs` by a test, which fails when they differ; \
         `UPDATE_DOCS=1 ./test` writes it anew.\n\n```mermaid\nstateDiagram-v2\n",
    );
    for arrow in ARROWS.iter().filter(|arrow| arrow.from != arrow.to) {
        page += &format!("  {} --> {}: {:?}\n", name(arrow.from), name(arrow.to), arrow.by);
    }
    page += "```\n\n| from | to | by | when |\n|---|---|---|---|\n";
    for arrow in ARROWS {
        let cell = |state: Option<State>| state.map_or("–", State::name);
        page += &format!("| {} | {} | {:?} | {} |\n", cell(arrow.from), cell(arrow.to), arrow.by, arrow.when);
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn q5_the_drawing_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/states.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, super::page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), super::page(), "run with UPDATE_DOCS=1");
    }
}
