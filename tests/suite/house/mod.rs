//! The house rules that a compiler does not check.
//!
//! What lives here: tests that read the repository itself, one file per rule. What may not: a test that runs the product.

mod acl;
mod circles;
mod crates;
mod dependencies;
mod doc_tests;
mod links;
mod metadata;
mod modules;
mod names;
mod reasons;
mod rows;
mod rust_version;
mod screens;
mod targets;
mod words;
pub(crate) mod workspace;
