//! The whole-system tests, one binary. What lives here: one folder per kind of test. What may not: the harness that
//! they share (the library of this crate), or anything the product uses.

mod conformance;
mod crash;
mod histories;
mod house;
mod property;
mod scripts;
mod system;
