//! Who calls, and what the caller may do (S3, S4).
//!
//! What lives here: [`Right`], and `rule`, which grants or denies rights on names; `table`, the right that each RPC needs,
//! which is the only place that knows the RPCs; `file`, the principals and their tokens, and `book`, which finds the
//! principal of a credential; `identities`, which reads the file again when it changes; `layer`, which identifies the
//! caller of every request; [`Access`], which services check. What may not: what an RPC does.

mod book;
mod caller_access;
mod config;
mod file;
mod identities;
mod layer;
mod refusal;
mod right;
mod rule;
mod table;
mod token;

pub use book::{Book, PrincipalSummary};
pub use caller_access::Access;
pub use config::AuthConfig;
pub use file::FileError;
pub(crate) use identities::Identities;
pub(crate) use layer::IdentifyLayer;
pub use right::Right;
pub use rule::{Rule, Rules, Verdict};
pub use table::{Guarded, METHODS, Resource};
pub use token::Token;
