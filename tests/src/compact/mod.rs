//! Engines with the module of the compact store: a Redis or a Valkey that a test starts, kills and starts again.
//!
//! These tests are plain threads and blocking sockets: they compare each byte of a reply, and a kill may come between any two.
//!
//! What lives here: the module's file ([`module`]), a process with it ([`Node`]), the protocol ([`Wire`]), a disk that fails
//! ([`FailingDisk`]), the turns of an event loop ([`Turns`]). What may not: tests.

mod build;
mod node;
mod reply;
mod turns;
mod unread;
mod wire;

pub use build::module;
pub use node::{Engine, Node, Setup, eventually};
pub use reply::Reply;
pub use turns::Turns;
pub use unread::{FailingDisk, compile};
pub use wire::{Wire, words};
