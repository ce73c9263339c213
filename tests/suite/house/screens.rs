//! The scripts that run most often fit on about a screen: their parts are named includes. `SCREEN_LINES` in lua bounds every script
//! with its header.

use super::workspace::Workspace;

/// Lines after the header, which describes keys, arguments and results.
const BODY_LINES_MAX: usize = 64;

#[test]
fn the_bodies_of_dequeue_append_and_enqueue_fit_on_a_screen() {
    let root = Workspace::read().root;
    for file in ["lua/scripts/dequeue.lua", "lua/counter/append.lua", "lua/scripts/enqueue.lua"] {
        let text = std::fs::read_to_string(root.join(file)).expect(file);
        let body = text.lines().skip_while(|line| line.starts_with("#!") || line.starts_with("--")).count();
        assert!((1..=BODY_LINES_MAX).contains(&body), "{file} has {body} lines after its header");
    }
}
