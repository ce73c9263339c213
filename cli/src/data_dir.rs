//! Where the verbs that keep data put it: in the folder for data of the XDG Base Directory Specification.

use std::path::PathBuf;

/// The data folder of a verb.
pub(crate) fn data_dir_of(verb: &str) -> PathBuf {
    let folder = |variable| std::env::var_os(variable).map(PathBuf::from);
    data_dir(folder("XDG_DATA_HOME"), folder("HOME"), verb)
}

/// Where earlier versions put it: in the folder where they were started.
pub(crate) fn earlier_data_dir_of(verb: &str) -> PathBuf {
    data_dir(None, None, verb)
}

fn data_dir(xdg_data_home: Option<PathBuf>, home: Option<PathBuf>, verb: &str) -> PathBuf {
    // The specification says to ignore a relative path.
    let absolute = |folder: Option<PathBuf>| folder.filter(|folder| folder.is_absolute());
    let data_home = absolute(xdg_data_home).or_else(|| Some(absolute(home)?.join(".local/share")));
    data_home.map_or_else(|| PathBuf::from(".tallystone"), |folder| folder.join("tallystone")).join(verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lives_in_the_xdg_folder() {
        let of = |xdg: &str, home: &str| data_dir(Some(xdg.into()), Some(home.into()), "dev");
        assert_eq!(of("/d", "/home/u"), PathBuf::from("/d/tallystone/dev"));
        assert_eq!(of("d", "/home/u"), PathBuf::from("/home/u/.local/share/tallystone/dev"));
        assert_eq!(data_dir(None, None, "demo"), PathBuf::from(".tallystone/demo"));
    }
}
