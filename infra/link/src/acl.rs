//! Whether Redis may read back what it wrote: it loads its append-only file as the user `default`. A Redis whose default
//! user lacks a command or a key drops every transaction with it at its next start, and each script call is one.

use crate::reply::{field, text};
use crate::{Link, LinkError};

/// Categories that a default user may lack: no script writes with their commands.
const NOT_NEEDED: [&str; 3] = ["-@admin", "-@dangerous", "-@blocking"];

/// What the ACL says of the user that loads the append-only file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// It may execute every command that the file has.
    Allowed,
    /// It may not; these are its rights.
    Denied { rights: String },
    /// This connection may not read the ACL, and Redis answered this.
    Unknown { why: String },
}

/// Reads the rights of the default user. Where this connection has that user, they are enough: it wrote with them.
pub(crate) async fn loading(link: &Link) -> Result<Loading, LinkError> {
    if let Ok(user) = link.call(redis::cmd("ACL").arg("WHOAMI")).await
        && text(&user) == "default"
    {
        return Ok(Loading::Allowed);
    }
    match link.call(redis::cmd("ACL").arg("GETUSER").arg("default")).await {
        Ok(user) => Ok(judge(&field(&user, "commands"), &field(&user, "keys"))),
        // An answer of Redis: the right is missing, or the command has another name.
        Err(error) if error.source.code().is_some() => Ok(Loading::Unknown { why: error.source.to_string() }),
        Err(error) => Err(error),
    }
}

fn judge(commands: &str, keys: &str) -> Loading {
    if commands.is_empty() {
        return Loading::Unknown { why: "it names no rights of the user 'default'".to_owned() };
    }
    let mut rules = commands.split_whitespace();
    let all_commands = rules.next() == Some("+@all") && rules.all(is_harmless);
    match all_commands && keys.split_whitespace().any(|pattern| pattern == "~*") {
        true => Loading::Allowed,
        false => Loading::Denied { rights: format!("{keys} {commands}").trim().to_owned() },
    }
}

fn is_harmless(rule: &str) -> bool {
    rule.starts_with('+') || NOT_NEEDED.contains(&rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_that_may_write_everything_can_load_the_file() {
        for (commands, keys) in [("+@all", "~*"), ("+@all -@dangerous", "~*"), ("+@all", "~a ~*")] {
            assert_eq!(judge(commands, keys), Loading::Allowed, "{commands} {keys}");
        }
        let lacking = [("-@all", ""), ("+@all", ""), ("+@all", "~ts:*"), ("+@all -@write", "~*"), ("-@all +set", "~*")];
        for (commands, keys) in lacking {
            assert!(matches!(judge(commands, keys), Loading::Denied { .. }), "{commands} {keys}");
        }
        assert!(matches!(judge("", "~*"), Loading::Unknown { .. }), "another server than Redis");
    }
}
