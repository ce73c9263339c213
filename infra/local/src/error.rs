//! Why a service could not be started.

use std::io;
use std::path::PathBuf;

/// Why there is no such process.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The program to start is not there.
    #[error("{what} is not installed; {remedy}")]
    NotInstalled {
        /// What was looked for.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The folder cannot be used.
    #[error("cannot use the data folder {}: {source}", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process serves the folder.
    #[error("the data folder {} is already served by a running {name} ({holder}); stop it first", path.display())]
    InUse {
        /// Which service.
        name: &'static str,
        /// The folder.
        path: PathBuf,
        /// Its process and port, as far as known.
        holder: String,
    },
    /// Its data needs a module that it did not load.
    #[error(
        "the data folder {} has keys of the compact store, but redis-server did not load its module, {module}",
        path.display()
    )]
    ModuleNeeded {
        /// The folder.
        path: PathBuf,
        /// The file of the module.
        module: &'static str,
    },
    /// It could not be started, or ended at once.
    #[error("{name} ended right after its start ({status}): {log_tail}")]
    Exited {
        /// Which service.
        name: &'static str,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// It does not answer.
    #[error("{name} runs but does not answer; see {}", log.display())]
    Unresponsive {
        /// Which service.
        name: &'static str,
        /// Its log.
        log: PathBuf,
    },
}
