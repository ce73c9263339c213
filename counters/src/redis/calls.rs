//! Calls of scripts, and what their failures mean.

use crate::refusal::Refusal;
use redis::Cmd;
use tallystone_archive::ArchiveError;
use tallystone_lua::counter::CounterScript;
use tallystone_model::Applied;

/// The texts of the scripts that a [`Link`](tallystone_link::Link) for these stores must load.
pub(super) fn scripts() -> impl Iterator<Item = &'static str> {
    CounterScript::ALL.iter().map(|script| script.source())
}

/// A script call; its arguments follow.
pub(super) fn call(script: CounterScript, keys: &[String]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.sha1()).arg(keys.len()).arg(keys);
    command
}

/// A failed call, as a refusal.
pub(super) fn of_link(error: tallystone_link::LinkError) -> Refusal {
    tallystone_model::Refusal::from(error).into()
}

/// A reply that the scripts never give, or a record that cannot be read.
pub(super) fn defect(what: &str) -> Refusal {
    Refusal::Internal(format!("a script answered {what}"))
}

/// A failure of the archive, as a refusal.
pub(super) fn of_archive(error: ArchiveError) -> Refusal {
    match error {
        ArchiveError::Unavailable { .. } | ArchiveError::Gone { .. } | ArchiveError::NoMark { .. } => {
            Refusal::Unavailable { applied: Applied::Unknown, why: format!("the archive: {error}") }
        }
        ArchiveError::Damaged { .. } => Refusal::DataLoss { why: format!("the archive: {error}") },
        other => Refusal::Internal(format!("the archive: {other}")),
    }
}
