//! Where the verbs that keep data put it.

use std::path::PathBuf;

/// The data folder of a verb.
pub(crate) fn data_dir_of(verb: &str) -> PathBuf {
    data_dir(std::env::var_os("XDG_DATA_HOME").map(PathBuf::from), verb)
}

fn data_dir(xdg_data_home: Option<PathBuf>, verb: &str) -> PathBuf {
    // The XDG specification says to ignore a relative path.
    match xdg_data_home.filter(|home| home.is_absolute()) {
        Some(home) => home.join("tallystone").join(verb),
        None => PathBuf::from(".tallystone").join(verb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lives_in_xdg_or_here() {
        assert_eq!(data_dir(Some("/d".into()), "dev"), PathBuf::from("/d/tallystone/dev"));
        assert_eq!(data_dir(Some("d".into()), "dev"), PathBuf::from(".tallystone/dev"));
        assert_eq!(data_dir(None, "demo"), PathBuf::from(".tallystone/demo"));
    }
}
