//! What a test runs that cargo builds.

use std::path::PathBuf;
use std::process::Command;

/// Builds what these arguments of `cargo build` name, with the profile of this test. Returns the folder of the programs.
///
/// # Panics
/// If it cannot be built.
pub fn cargo_build(target: &[&str]) -> PathBuf {
    let (folder, profile) = built();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Cargo sets variables for this test's own package. Some build scripts depend on them: they, and every crate above
    // them, would be built again, which takes minutes.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command.args(["build", "--profile", &profile, "--locked", "--quiet"]).args(target);
    let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.is_ok_and(|status| status.success()), "this does not build: {command:?}");
    folder
}

/// The folder of the programs that were built with this test, and its profile.
fn built() -> (PathBuf, String) {
    // This test is target/PROFILE/deps/suite-….
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.ancestors().nth(2).expect("tests lie two folders deep");
    let profile = match folder.file_name().expect("a folder").to_str().expect("text") {
        "debug" => "dev",
        profile => profile,
    };
    (folder.to_owned(), profile.to_owned())
}
