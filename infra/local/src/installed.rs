//! Where what `scripts/services.sh` has installed is, and Java.

use crate::LocalError;
use std::env::{split_paths, var_os};
use std::path::{Path, PathBuf};

const REMEDY: &str = "scripts/services.sh installs it (`./quickstart --full` and `./test` run it)";

/// The folder of a service, complete.
pub(crate) fn service(name: &str) -> Result<PathBuf, LocalError> {
    let dir = services_dir().join(name);
    if !dir.join(".complete").exists() {
        let what = format!("{name} (in {})", dir.display());
        return Err(LocalError::NotInstalled { what, remedy: REMEDY.to_owned() });
    }
    Ok(dir)
}

/// The version of Valkey that `scripts/services.sh --tests` installs.
const VALKEY: &str = "9.1.2";
/// The version of redis-py that it installs.
const REDIS_PY: &str = "7.4.1";
/// The version of DuckDB that it installs.
const DUCKDB: &str = "1.4.2";
/// The version of moto that it installs.
const MOTO: &str = "5.1.17";
/// The version of Cassandra that it installs.
const CASSANDRA: &str = "5.0.5";

/// A valkey-server: the environment's `TALLYSTONE_VALKEY_SERVER`, else the one that `scripts/services.sh --tests` installs.
///
/// # Errors
/// `NotInstalled`.
pub fn valkey_server() -> Result<PathBuf, LocalError> {
    if let Some(program) = var_os("TALLYSTONE_VALKEY_SERVER").filter(|value| !value.is_empty()) {
        return Ok(program.into());
    }
    let or = ", or set TALLYSTONE_VALKEY_SERVER";
    Ok(for_tests(&format!("valkey-{VALKEY}"), or)?.join("valkey-server"))
}

/// The folder of redis-py, for `PYTHONPATH`.
///
/// # Errors
/// `NotInstalled`.
pub fn redis_py() -> Result<PathBuf, LocalError> {
    for_tests(&format!("redis-py-{REDIS_PY}"), "")
}

/// The folder of DuckDB, for `PYTHONPATH`.
///
/// # Errors
/// `NotInstalled`.
pub fn duckdb() -> Result<PathBuf, LocalError> {
    for_tests(&format!("duckdb-{DUCKDB}"), "")
}

/// The folder of moto, a server with the interface of S3, for `PYTHONPATH`.
///
/// # Errors
/// `NotInstalled`.
pub fn moto() -> Result<PathBuf, LocalError> {
    for_tests(&format!("moto-{MOTO}"), "")
}

/// The folder of Cassandra.
pub(crate) fn cassandra() -> Result<PathBuf, LocalError> {
    for_tests(&format!("cassandra-{CASSANDRA}"), "")
}

fn for_tests(name: &str, or: &str) -> Result<PathBuf, LocalError> {
    let dir = services_dir().join(name);
    if dir.join(".complete").exists() {
        return Ok(dir);
    }
    Err(LocalError::NotInstalled {
        what: format!("{name} (in {})", dir.display()),
        remedy: format!("scripts/services.sh --tests installs it (`./test` runs it){or}"),
    })
}

/// `TALLYSTONE_SERVICES_DIR`, else `tallystone/services` in the user's cache: as the script says it.
fn services_dir() -> PathBuf {
    let given = |name| var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || given("XDG_CACHE_HOME").unwrap_or_else(|| given("HOME").unwrap_or_default().join(".cache"));
    given("TALLYSTONE_SERVICES_DIR").unwrap_or_else(|| cache().join("tallystone/services"))
}

/// The folder of the Java to use: `JAVA_HOME`, else that of the `java` on the path.
pub(crate) fn java_home() -> Result<PathBuf, LocalError> {
    let of_path = || {
        let path = var_os("PATH")?;
        let java = split_paths(&path).map(|dir| dir.join("java")).find(|java| java.is_file())?;
        Some(java.canonicalize().ok()?.parent()?.parent()?.to_owned())
    };
    let home = var_os("JAVA_HOME").map(PathBuf::from).or_else(of_path);
    home.filter(|home| java(home).is_file()).ok_or_else(|| LocalError::NotInstalled {
        what: "Java (java on the PATH, or JAVA_HOME)".to_owned(),
        remedy: REMEDY.to_owned(),
    })
}

/// The program.
pub(crate) fn java(home: &Path) -> PathBuf {
    home.join("bin/java")
}
