//! No file of a crate uses a file that, directly or over others, uses it. A reader can then understand a crate file by
//! file, from those that use nothing upwards.

use super::modules::Modules;
use super::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

#[test]
fn files_of_a_crate_form_no_circle() {
    let workspace = Workspace::read();
    let mut found = String::new();
    for root in workspace.members.iter().flat_map(|member| &member.roots) {
        let circles = circles(&Modules::read(root), |file| workspace.shown(file));
        for circle in &circles {
            found += &format!("\n{}", circle.text());
        }
    }
    assert!(found.is_empty(), "files that use each other in a circle:{found}\n");
}

#[test]
fn a_circle_is_found_through_imports_and_reexports() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("lib.rs", "mod a; mod b; mod c; pub use c::C as Renamed; fn unrelated() {}");
    write("c.rs", "pub struct C; #[cfg(test)] mod tests { use crate::a::A; }");
    write("b.rs", "use crate::Renamed; pub enum B { One(Renamed) }");
    write("a.rs", "pub struct A; fn f() { let _ = super::b::B::One; }");
    let name = |file: &Path| file.file_name().expect("a name").display().to_string();
    let read = || circles(&Modules::read(&folder.path().join("lib.rs")), name);
    assert!(read().is_empty(), "a uses b, b uses c; only c's tests use a");
    write("c.rs", "pub struct C(crate::a::A);");
    let found = read();
    assert_eq!(found.len(), 1);
    // A re-export is no use, so the root is not part of it.
    assert_eq!(found[0].files, ["a.rs", "b.rs", "c.rs"].map(str::to_owned).into());
    assert_eq!(found[0].walk.len(), 4, "{}", found[0].text());
    write("c.rs", "use crate::Map; pub struct C;");
    write("lib.rs", "mod a; mod b; mod c; use std::collections::BTreeMap as Map; fn f() { c::C; }");
    assert!(read().is_empty(), "an item of another crate belongs to no file");
    write("c.rs", "pub struct C; fn g() { crate::unrelated() }");
    write("lib.rs", "mod a; mod b; mod c; pub use c::C as Renamed; fn unrelated() { c::C; }");
    assert_eq!(read()[0].files, ["c.rs", "lib.rs"].map(str::to_owned).into(), "a module and its parent");
}

/// Files that all reach each other.
struct Circle {
    files: BTreeSet<String>,
    /// A shortest walk from one of them back to it.
    walk: Vec<String>,
}

impl Circle {
    fn text(&self) -> String {
        format!("{} files, for example {}", self.files.len(), self.walk.join(" → "))
    }
}

/// The circles of a crate, each with all of its files.
fn circles(modules: &Modules, shown: impl Fn(&Path) -> String) -> Vec<Circle> {
    let edges = modules.edges();
    let walks: Vec<BTreeMap<usize, Vec<usize>>> = (0..edges.len()).map(|from| walks_from(&edges, from)).collect();
    let name = |file: &usize| shown(&modules.files()[*file]);
    let mut done = BTreeSet::new();
    let mut circles = Vec::new();
    for begin in 0..edges.len() {
        if !walks[begin].contains_key(&begin) || done.contains(&begin) {
            continue;
        }
        let group: Vec<usize> = walks[begin].keys().copied().filter(|file| walks[*file].contains_key(&begin)).collect();
        let shortest = group.iter().map(|file| (file, &walks[*file][file])).min_by_key(|(_, walk)| walk.len());
        let (first, walk) = shortest.expect("a group has a file");
        circles.push(Circle {
            files: group.iter().map(name).collect(),
            walk: std::iter::once(first).chain(walk).map(name).collect(),
        });
        done.extend(group);
    }
    circles
}

/// A shortest walk to each file that can be reached from one, without its first file.
fn walks_from(edges: &[BTreeSet<usize>], from: usize) -> BTreeMap<usize, Vec<usize>> {
    let mut walks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut next = VecDeque::from([(from, Vec::new())]);
    while let Some((at, walk)) = next.pop_front() {
        for to in &edges[at] {
            if !walks.contains_key(to) {
                let walk = [walk.as_slice(), &[*to]].concat();
                walks.insert(*to, walk.clone());
                next.push_back((*to, walk));
            }
        }
    }
    walks
}
