//! Assembles a script: replaces its `--@include NAME` lines by `lib/NAME.lua`, each part once, in order.

use crate::inline::inline;

/// Why a script could not be assembled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// An include of a part that does not exist.
    #[error("{within}: there is no part '{name}'")]
    Missing {
        /// The name of the part.
        name: String,
        /// The including file.
        within: String,
    },
    /// Parts that include each other.
    #[error("{within}: '{name}' includes itself")]
    Cycle {
        /// The part.
        name: String,
        /// The file that closes the circle.
        within: String,
    },
    /// The same include twice in one file.
    #[error("{within}: '{name}' is included twice")]
    Twice {
        /// The part.
        name: String,
        /// The including file.
        within: String,
    },
}

/// The text of a script with its parts in place, and the prelude after its first line (`#!lua …`, which Redis requires to
/// be first), then with the values of its constants in place of their names. `find` returns the text of a part. Of the
/// prelude's lines `local NAME = …` the script gets those that it needs: Lua admits 200 local variables in one function.
pub fn assemble<'a>(
    name: &str,
    source: &'a str,
    prelude: &str,
    find: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<String, LoadError> {
    let (shebang, rest) = source.split_once('\n').unwrap_or((source, ""));
    let mut body = String::new();
    expand(name, rest, find, &mut Vec::new(), &mut Vec::new(), &mut body)?;
    let mut out = format!("{shebang}\n");
    for line in prelude.lines() {
        if line.split_whitespace().nth(1).is_none_or(|constant| body.contains(constant)) {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(inline(&(out + &body)))
}

fn expand<'a>(
    within: &str,
    source: &'a str,
    find: &dyn Fn(&str) -> Option<&'a str>,
    open: &mut Vec<String>,
    done: &mut Vec<String>,
    out: &mut String,
) -> Result<(), LoadError> {
    let mut here: Vec<&str> = Vec::new();
    for line in source.lines() {
        let Some(name) = line.strip_prefix("--@include ").map(str::trim) else {
            // Without comments and empty lines: Redis need not store them.
            if !line.trim_start().starts_with("--") && !line.trim().is_empty() {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        };
        let at = || (name.to_owned(), within.to_owned());
        if here.contains(&name) {
            let (name, within) = at();
            return Err(LoadError::Twice { name, within });
        }
        here.push(name);
        if open.iter().any(|part| part == name) {
            let (name, within) = at();
            return Err(LoadError::Cycle { name, within });
        }
        if done.iter().any(|part| part == name) {
            continue;
        }
        let Some(part) = find(name) else {
            let (name, within) = at();
            return Err(LoadError::Missing { name, within });
        };
        open.push(name.to_owned());
        expand(name, part, find, open, done, out)?;
        open.pop();
        done.push(name.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> Option<&'static str> {
        Some(match name {
            "a" => "local a = 1",
            "b" => "--@include a\nlocal b = a",
            "loop1" => "--@include loop2",
            "loop2" => "--@include loop1",
            _ => return None,
        })
    }

    #[test]
    fn parts_come_once_and_in_order() {
        let source = "#!lua\n-- doc\n--@include b\n--@include a\nreturn b + P\n";
        let text = assemble("s", source, "local P = 0\nlocal UNUSED = 0\n", &find);
        assert_eq!(text.unwrap(), "#!lua\nlocal a = 1\nlocal b = a\nreturn b + 0\n");
    }

    #[test]
    fn mistakes_are_errors() {
        let load = |source| assemble("s", source, "", &find).unwrap_err();
        assert_eq!(load("#!lua\n--@include x"), LoadError::Missing { name: "x".into(), within: "s".into() });
        assert_eq!(
            load("#!lua\n--@include a\n--@include a"),
            LoadError::Twice { name: "a".into(), within: "s".into() }
        );
        assert_eq!(load("#!lua\n--@include loop1"), LoadError::Cycle { name: "loop1".into(), within: "loop2".into() });
    }
}
