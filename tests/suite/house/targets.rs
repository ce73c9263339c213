//! `./test` runs the suite by its name, and all other tests by a pattern that must leave out the suite and nothing else.

use super::workspace::Workspace;

#[test]
fn the_pattern_of_the_other_tests_leaves_out_only_the_suite() {
    let workspace = Workspace::read();
    assert!(workspace.text("test").contains("of_crates=(--lib --bins --test '[!s]*')"));
    let tests = workspace.members.iter().flat_map(|member| &member.tests);
    let left_out: Vec<&String> = tests.filter(|name| name.starts_with('s')).collect();
    assert_eq!(left_out, ["suite"]);
}
