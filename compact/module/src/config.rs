//! The arguments of the module: `loadmodule PATH [dir FOLDER] [readers N]`.

use crate::args::Args;
use std::path::PathBuf;

const READERS: usize = 4;
const READERS_MAX: u64 = 64;

/// What the module was loaded with.
pub(crate) struct Config {
    /// The folder of the files of cold tables.
    pub(crate) dir: PathBuf,
    /// Threads that read pages.
    pub(crate) readers: usize,
}

impl Config {
    /// Parses the arguments of the module.
    pub(crate) fn parse(args: &Args<'_>) -> Result<Config, String> {
        // The engine has made its `dir` the working directory.
        let here = std::env::current_dir().map_err(|error| format!("the working directory is unknown: {error}"))?;
        let mut config = Config { dir: here.clone(), readers: READERS };
        let mut at = 0;
        while at < args.len() {
            let (name, value) = (args.get(at), (at + 1 < args.len()).then(|| args.get(at + 1)));
            match (name.to_ascii_lowercase().as_slice(), value) {
                (b"dir", Some(value)) => config.dir = here.join(String::from_utf8_lossy(value).as_ref()),
                (b"readers", Some(value)) => {
                    let readers = crate::args::unsigned(value).filter(|readers| (1..=READERS_MAX).contains(readers));
                    config.readers = readers.ok_or(format!("readers is a number from 1 to {READERS_MAX}"))? as usize;
                }
                (name, _) => {
                    let name = String::from_utf8_lossy(name);
                    return Err(format!("the arguments are 'dir FOLDER' and 'readers N', not '{name}'"));
                }
            }
            at += 2;
        }
        Ok(config)
    }
}
