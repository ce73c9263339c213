//! The section `[audit]` of the configuration.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[audit]`: which calls are recorded, and where (S5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// The file, to which lines are appended; `None`: no audit log. A file that is moved away is created again. `-`: standard error,
    /// between the lines of the program's log.
    pub file: Option<PathBuf>,
    /// Whether calls that only produce, consume, count or read are also recorded. Calls that are refused because of
    /// their credential or rights always are.
    pub all_calls: bool,
    /// What happens to calls that need a line while the file cannot be written.
    pub on_failure: OnAuditFailure,
}

/// `audit.on_failure`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAuditFailure {
    /// They are refused, with UNAVAILABLE and the reason AUDIT_FAILED.
    #[default]
    Refuse,
    /// They are executed, and `tallystone_audit_lost_total` counts them.
    Count,
}
