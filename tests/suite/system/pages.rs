//! The commands of the documents: tests run them as they are written.

use std::path::Path;

/// The shell commands below a heading of a page, one text for each block. `page` is the path within the repository.
pub(crate) fn blocks(page: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = std::fs::read_to_string(path).expect("a page");
    let section = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("{page} has no {heading:?}"));
    // Up to the next heading of this level or above.
    let level = heading.chars().take_while(|c| *c == '#').count();
    let is_end = |line: &&str| (1..=level).any(|level| line.starts_with(&format!("{} ", "#".repeat(level))));
    let mut blocks = Vec::new();
    let mut in_block = false;
    for line in section.lines() {
        match line.trim() {
            "```sh" => {
                in_block = true;
                blocks.push(String::new());
            }
            "```" => in_block = false,
            _ if in_block => {
                let block = blocks.last_mut().expect("it has begun");
                block.push_str(line);
                block.push('\n');
            }
            _ if is_end(&line) => break,
            _ => {}
        }
    }
    blocks
}
