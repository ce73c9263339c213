//! Who calls, and what the caller may do (S3, S4).
//!
//! What lives here: [`Right`], and `rule`, which grants or denies rights on names; `table`, the right that each RPC needs,
//! which is the only place that knows the RPCs; `file`, the principals and their tokens, and `book`, which finds the
//! principal of a credential; `identities`, which reads the file again when it changes; `jwt`, callers that a provider identifies; `layer`, which identifies the
//! caller of every request; [`Access`], which services check; `audit`, the log of who did what. What may not: what an RPC does.

mod audit;
mod book;
mod caller_access;
mod config;
mod file;
mod identities;
mod jwt;
mod layer;
mod refusal;
mod right;
mod rule;
mod table;
mod token;

pub(crate) use audit::AuditLog;
pub use audit::{AuditConfig, OnAuditFailure};
pub use book::{Book, PrincipalSummary};
pub use caller_access::{Access, AuditedCall};
pub use config::AuthConfig;
pub use file::FileError;
pub(crate) use identities::Identities;
pub use jwt::JwtConfig;
pub(crate) use layer::IdentifyLayer;
pub use right::Right;
pub use rule::{Patterns, Rule, Rules, Verdict};
pub use table::{Guarded, METHODS, Resource};
pub use token::Token;
