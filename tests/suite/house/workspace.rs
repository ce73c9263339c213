//! The workspace as cargo describes it: which crates there are, where, and what they depend on.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The crates of this repository.
pub(crate) struct Workspace {
    pub(super) root: PathBuf,
    pub(super) members: Vec<Member>,
}

/// One crate.
pub(super) struct Member {
    pub(super) name: String,
    /// Below the root: `infra/link`.
    pub(super) folder: String,
    /// The crates of this workspace that it uses, those that only its tests use excepted.
    pub(super) uses: BTreeSet<String>,
    /// The first file of each of its targets: library, program, tests, examples.
    pub(super) roots: Vec<PathBuf>,
    /// The names of its integration tests.
    pub(super) tests: Vec<String>,
    /// Whether the examples in its documentation are tests; `None`: it has no library, or one that Rust cannot link.
    pub(super) has_doc_tests: Option<bool>,
}

impl Workspace {
    pub(crate) fn read() -> Workspace {
        let output = std::process::Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
        let root = PathBuf::from(text(&metadata["workspace_root"]));
        let packages = metadata["packages"].as_array().expect("packages");
        let names: BTreeSet<&str> = packages.iter().map(|package| text(&package["name"])).collect();
        let members = packages.iter().map(|package| Member::of(package, &root, &names)).collect();
        Workspace { root, members }
    }

    /// The folder of a crate, below the root: `infra/link/`.
    pub(super) fn folder_of(&self, name: &str) -> String {
        let member = self.members.iter().find(|member| member.name == name);
        format!("{}/", member.unwrap_or_else(|| panic!("there is no crate {name}")).folder)
    }

    /// A path below the root, as people write it.
    pub(super) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// The text of a file, by its path below the root.
    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The files of the repository with one of these extensions; "": without one. What is built is excepted, and what is hidden,
    /// except `.ci`.
    pub(super) fn files(&self, extensions: &[&str]) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&self.root, extensions, &mut files);
        files.sort();
        files
    }
}

impl Member {
    fn of(package: &Value, root: &Path, names: &BTreeSet<&str>) -> Member {
        let manifest = Path::new(text(&package["manifest_path"]));
        let folder =
            manifest.parent().and_then(|folder| folder.strip_prefix(root).ok()).expect("a folder below the root");
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        let uses = normal.map(|dependency| text(&dependency["name"])).filter(|name| names.contains(name));
        let targets = || package["targets"].as_array().into_iter().flatten();
        let library = targets().find(|target| target["kind"][0] == "lib");
        let tests =
            targets().filter(|target| target["kind"][0] == "test").map(|target| text(&target["name"]).to_owned());
        let roots =
            targets().filter(|target| target["kind"][0] != "custom-build").map(|target| text(&target["src_path"]));
        Member {
            name: text(&package["name"]).to_owned(),
            folder: folder.display().to_string(),
            uses: uses.map(str::to_owned).collect(),
            roots: roots.map(PathBuf::from).collect(),
            tests: tests.collect(),
            has_doc_tests: library.and_then(|target| target["doctest"].as_bool()),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn collect(folder: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            let is_hidden = name.starts_with('.') && name != ".ci";
            if !is_hidden && !["target", "node_modules"].contains(&name.as_ref()) {
                collect(&path, extensions, files);
            }
        } else if !name.starts_with('.') {
            let extension = path.extension().unwrap_or_default();
            if extensions.iter().any(|wanted| extension == *wanted) {
                files.push(path);
            }
        }
    }
}
