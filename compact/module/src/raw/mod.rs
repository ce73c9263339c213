//! The part of redismodule.h (API version 1, as of Redis 7.0) that this crate uses, written by hand.
//!
//! What lives here: types, constants and function pointers as the engine declares them. What may not: anything that wraps
//! them. The names are those of the header without their prefix, in the style of Rust.

// The header's own names explain these; a sentence for each would repeat them.
#![allow(missing_docs)]

mod info;
mod table;
mod types;

pub(crate) use info::*;
pub(crate) use table::{Api, api, api_if_resolved, resolve};
pub(crate) use types::*;
