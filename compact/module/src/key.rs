//! A key that a command has opened.

use crate::commands::Stop;
use crate::context::Context;
use crate::raw::{self, api};
use crate::value::{Shared, Value};
use crate::{args::Args, datatype};
use std::marker::PhantomData;
use std::sync::Arc;

/// An open key of a command: its first argument.
pub(crate) struct Key<'a> {
    raw: *mut raw::Key,
    _command: PhantomData<&'a raw::Key>,
}

impl<'a> Key<'a> {
    /// Opens the key of a command.
    #[inline]
    pub(crate) fn open(context: &'a Context<'_>, args: &Args<'a>, is_write: bool) -> Key<'a> {
        let mode = if is_write { raw::READ | raw::WRITE } else { raw::READ };
        // SAFETY: the context and the string are valid for the callback. Null stands for no key, and for nothing else.
        let raw = unsafe { (api().open_key)(context.raw(), args.raw(1), mode) };
        Key { raw, _command: PhantomData }
    }

    /// The set of the key. One that lacks pieces of its dump is neither read nor changed: what was changed would not be part of a
    /// further dump, or be overwritten by the next piece.
    #[inline]
    pub(crate) fn set(&self) -> Result<&Arc<Shared>, Stop> {
        let shared = self.set_in_any_state()?;
        if shared.is_restoring() { Err(Stop::Restoring) } else { Ok(shared) }
    }

    /// The set of the key, also if pieces of its dump are still to come.
    #[inline]
    pub(crate) fn set_in_any_state(&self) -> Result<&Arc<Shared>, Stop> {
        // SAFETY: the engine's functions take null as a key that does not exist.
        unsafe {
            if (api().module_type_get_type)(self.raw) != datatype::kind() {
                return Err(if self.is_empty() { Stop::NoSet } else { Stop::WrongType });
            }
            let value = (api().module_type_get_value)(self.raw);
            // SAFETY: a value of our type. It stays valid while the key is open. Another module may delete it when it is notified of a
            // change, but that is after the key is closed ([`Call::changed`](crate::commands::Call::changed)).
            Ok(&datatype::from_raw(value).shared)
        }
    }

    /// Whether the key does not exist.
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: as above.
        unsafe { (api().key_type)(self.raw) == raw::KEY_TYPE_EMPTY }
    }

    /// Gives the key a value. It was opened to write.
    pub(crate) fn put(&self, value: Value) -> Result<(), Stop> {
        let value = datatype::into_raw(value);
        // SAFETY: the key is open to write; the engine takes the value.
        if unsafe { (api().module_type_set_value)(self.raw, datatype::kind(), value) } == raw::OK {
            return Ok(());
        }
        // SAFETY: the engine did not take the value, so that it is ours.
        drop(unsafe { Box::from_raw(value.cast::<Value>()) });
        Err(Stop::text("ERR the key cannot be written"))
    }
}

impl Drop for Key<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the key was opened by `open`, and null is taken.
        unsafe { (api().close_key)(self.raw) };
    }
}
