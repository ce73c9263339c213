//! Each crate's `rust-version` is true: no dependency needs a later Rust.

use super::metadata::metadata;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// 1.88 and 1.88.0 are the same.
fn version(package: &Value) -> Vec<u32> {
    let text = package["rust_version"].as_str().unwrap_or("0");
    let mut numbers: Vec<u32> = text.split('.').map(|number| number.parse().expect("a number")).collect();
    numbers.resize(3, 0);
    numbers
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[test]
fn no_dependency_needs_a_later_rust_than_its_crate_claims() {
    let metadata = metadata();
    let id = |value: &Value| value["id"].as_str().expect("an id").to_owned();
    let packages: BTreeMap<_, _> = list(&metadata["packages"]).map(|package| (id(package), package)).collect();
    let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"]).map(|node| (id(node), node)).collect();

    let mut wrong = Vec::new();
    for member in list(&metadata["workspace_members"]).map(|member| member.as_str().expect("an id")) {
        let (mut seen, mut open) = (BTreeSet::new(), vec![member.to_owned()]);
        while let Some(next) = open.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            let needed = |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            let dependencies = list(&nodes[&next]["deps"]).filter(needed);
            open.extend(dependencies.map(|dependency| dependency["pkg"].as_str().expect("an id").to_owned()));
        }
        let claimed = version(packages[member]);
        let later = seen.iter().map(|id| packages[id]).filter(|package| version(package) > claimed);
        wrong.extend(later.map(|package| {
            let needs = format!("{} {}", package["name"], package["rust_version"]);
            format!("{} claims {}, but needs {needs}", packages[member]["name"], packages[member]["rust_version"])
        }));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
