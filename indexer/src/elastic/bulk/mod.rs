//! Many writes in bulk requests: gathered into requests of bounded size (`builder`), sent a few at a time, and each
//! write's outcome read from the response (`outcome`).

mod action;
mod batch;
mod builder;
mod outcome;

pub(super) use action::{Action, ExternalVersion, Target};
pub(super) use builder::Bulk;
