//! The module as a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const FILE: &str = "libtallystone_compact_module.so";

/// The path of the module. Where `TALLYSTONE_PROGRAM` names the program to test, the module was built with it and lies in its folder.
/// Otherwise it is built first, since an old one would prove nothing. `TALLYSTONE_COMPACT_MODULE` names another file to test.
pub fn module() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let of_program = || Some(Path::new(&std::env::var_os("TALLYSTONE_PROGRAM")?).with_file_name(FILE));
    PATH.get_or_init(|| match std::env::var_os("TALLYSTONE_COMPACT_MODULE") {
        Some(path) => path.into(),
        None => of_program().filter(|path| path.exists()).unwrap_or_else(build),
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Variables that Cargo sets for this test's own package would have other crates built again.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    let built = command
        .args(["build", "--release", "--locked", "--quiet", "-p", "tallystone-compact-module"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "the module could not be built: cargo build --release -p tallystone-compact-module"
    );
    // This test is target/release/deps/suite-….
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.ancestors().nth(2).expect("tests lie two folders deep");
    folder.join(FILE)
}
