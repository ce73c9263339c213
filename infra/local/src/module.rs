//! Where the library of the compact counter store is, a module that redis-server loads.

use crate::LocalError;
use std::env::{current_exe, var_os};
use std::path::{Path, PathBuf};

/// The library, as cargo builds it.
pub const MODULE_FILE: &str = "libtallystone_compact_module.so";
/// The variable that sets another place.
const VARIABLE: &str = "TALLYSTONE_COMPACT_MODULE";

/// The library of the compact store's module: where `TALLYSTONE_COMPACT_MODULE` says, else in the folder of the running program,
/// else in `../lib/tallystone` of that folder. `None`: it is in none of these places.
///
/// # Errors
/// The variable names a file that does not exist.
pub fn compact_module() -> Result<Option<PathBuf>, LocalError> {
    match var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
        // redis-server has another working directory.
        Some(given) => match given.canonicalize() {
            Ok(path) if path.is_file() => Ok(Some(path)),
            _ => Err(missing(&given)),
        },
        None => Ok(current_exe().ok().and_then(|program| near(&program))),
    }
}

/// The library near a program.
fn near(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    let folder = program.parent()?;
    let mut folders = vec![folder.to_owned(), folder.join("../lib/tallystone")];
    if folder.ends_with("deps") {
        // A program of tests: cargo puts the library one folder up.
        folders.push(folder.join(".."));
    }
    let path = folders.into_iter().map(|folder| folder.join(MODULE_FILE)).find(|path| path.is_file())?;
    path.canonicalize().ok()
}

fn missing(given: &Path) -> LocalError {
    LocalError::NotInstalled {
        what: format!("the module of the compact store ({VARIABLE} is {})", given.display()),
        remedy: "`cargo build --release -p tallystone-compact-module` builds it, in target/release".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn w1_the_module_is_found_near_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let put = |path: &str| {
            let path = root.join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(&path, "").unwrap();
            path
        };
        let (program, test) = (put("bin/tallystone"), put("target/release/deps/suite"));
        assert_eq!((near(&program), near(&test)), (None, None));
        let installed = put("lib/tallystone/libtallystone_compact_module.so");
        assert_eq!(near(&program), Some(installed));
        let same_folder = put("bin/libtallystone_compact_module.so");
        assert_eq!(near(&program), Some(same_folder));
        let built = put("target/release/libtallystone_compact_module.so");
        assert_eq!(near(&test), Some(built));
    }

    #[test]
    fn w1_a_module_that_is_not_there_is_named() {
        let error = missing(Path::new("/no/such.so")).to_string();
        assert!(error.contains("/no/such.so") && error.contains("tallystone-compact-module"), "{error}");
    }
}
