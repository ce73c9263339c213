//! The module as a file.

use crate::cargo_build;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const FILE: &str = "libtallystone_compact_module.so";

/// The path of the module. Where `TALLYSTONE_PROGRAM` names the program to test, the module was built with it and lies in its folder.
/// Otherwise it is built first, since an old one would prove nothing. `TALLYSTONE_COMPACT_MODULE` names another file to test.
pub fn module() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let of_program = || Some(Path::new(&std::env::var_os("TALLYSTONE_PROGRAM")?).with_file_name(FILE));
    PATH.get_or_init(|| match std::env::var_os("TALLYSTONE_COMPACT_MODULE") {
        Some(path) => path.into(),
        None => of_program()
            .filter(|path| path.exists())
            .unwrap_or_else(|| cargo_build(&["-p", "tallystone-compact-module"]).join(FILE)),
    })
}
