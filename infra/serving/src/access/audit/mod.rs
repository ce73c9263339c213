//! The audit log: which callers changed or read what, and which were refused (S5).
//!
//! What lives here: the section of the configuration; the file, with one line of JSON for each call; what one line says.
//! What may not: which right a call needs, and who the caller is (`access`).

mod config;
mod line;
mod log;

pub use config::{AuditConfig, OnAuditFailure};
pub(super) use line::{Line, reason};
pub(crate) use log::AuditLog;
