//! The house rules that a compiler does not check: who may use whom, and that every row of the specification has a test
//! that carries its id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each crate may depend on, of ours (ARCHITECTURE.md). Development dependencies are free.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tallystone-proto", &[]),
    ("tallystone-model", &[]),
    ("tallystone-local", &[]),
    ("tallystone-lua", &["tallystone-model"]),
    ("tallystone-link", &["tallystone-model"]),
    ("tallystone-server", &["tallystone-proto", "tallystone-model", "tallystone-lua", "tallystone-link"]),
    ("tallystone-client", &["tallystone-proto"]),
    (
        "tallystone-counters",
        &["tallystone-proto", "tallystone-model", "tallystone-lua", "tallystone-link", "tallystone-client"],
    ),
    ("tallystone-workers", &["tallystone-client", "tallystone-counters"]),
    ("tallystone-kafka", &[]),
    ("tallystone-indexer", &["tallystone-proto", "tallystone-model", "tallystone-kafka"]),
    (
        "tallystone-bench",
        &[
            "tallystone-proto",
            "tallystone-model",
            "tallystone-local",
            "tallystone-kafka",
            "tallystone-server",
            "tallystone-client",
            "tallystone-indexer",
            "tallystone-counters",
            "tallystone-workers",
        ],
    ),
];

/// The rows that the queue promises on one machine; of Q17 the layout and the routing.
const QUEUE_ROWS: std::ops::RangeInclusive<u32> = 1..=21;
/// Those of the counters; N12 is to come, N13 is a figure (docs/performance.md).
const COUNTER_ROWS: std::ops::RangeInclusive<u32> = 1..=11;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above this crate").to_owned()
}

#[test]
fn arrows_between_crates_only_run_down() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let ours = dependencies.filter(|dependency| dependency["kind"].is_null());
        let names =
            ours.filter_map(|dependency| dependency["name"].as_str()).filter(|name| name.starts_with("tallystone"));
        used.insert(package["name"].as_str().unwrap_or_default(), names.collect());
    }
    for (name, may_use) in MAY_USE {
        let used = used.get(name).unwrap_or_else(|| panic!("{name} is not in the workspace"));
        let wrong: Vec<_> = used.iter().filter(|name| !may_use.contains(name)).collect();
        assert!(wrong.is_empty(), "{name} may not use {wrong:?}");
    }
}

#[test]
fn every_row_has_a_test_with_its_id() {
    let mut files = Vec::new();
    for folder in ["model", "lua", "server", "client", "indexer", "counters", "workers", "cli", "tests"] {
        collect(&root().join(folder), &mut files);
    }
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
    let rows = QUEUE_ROWS.map(|row| format!("q{row}_")).chain(COUNTER_ROWS.map(|row| format!("n{row}_")));
    let missing: Vec<String> =
        rows.filter(|id| !text.contains(&format!("fn {id}")) && !text.contains(&format!("_{id}"))).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
