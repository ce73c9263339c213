//! What cargo knows of all packages.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The output of `cargo metadata`, without a download.
pub(super) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &host()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// The platform that Rust compiles for here. The packages of others need not have been downloaded.
fn host() -> String {
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_owned()
}
