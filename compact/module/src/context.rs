//! The engine's context of one callback: replies, keys, replication, as safe functions.

use crate::args::Args;
use crate::raw::{self, api};
use std::ffi::{CStr, CString, c_int, c_long};
use std::marker::PhantomData;

/// How much a line of the log matters.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Notice,
    Warning,
}

/// Writes to the engine's log, from any thread.
pub(crate) fn log(level: Level, text: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let line = printable(text);
    // SAFETY: without a context the engine names the module itself; the format has one string, which follows.
    unsafe { (api().log)(std::ptr::null_mut(), level.as_ptr(), c"<tallystone_compact> %s".as_ptr(), line.as_ptr()) };
}

/// A text without the bytes that end a string of C.
fn printable(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A C string of one line, as an error reply has to be.
fn one_line(text: &str) -> CString {
    CString::new(text.replace(['\0', '\r', '\n'], " ")).unwrap_or_default()
}

/// The context of one callback.
pub(crate) struct Context<'a> {
    raw: *mut raw::Ctx,
    _callback: PhantomData<&'a raw::Ctx>,
}

impl Context<'_> {
    /// # Safety
    /// The engine passed this context to the callback that runs, and the value does not outlive it.
    #[inline]
    pub(crate) unsafe fn new<'a>(raw: *mut raw::Ctx) -> Context<'a> {
        Context { raw, _callback: PhantomData }
    }

    /// For functions that this module wraps elsewhere.
    #[inline]
    pub(crate) fn raw(&self) -> *mut raw::Ctx {
        self.raw
    }

    /// The engine's flags of the moment. They take it a while to collect.
    pub(crate) fn flags(&self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { (api().get_context_flags)(self.raw) }
    }

    pub(crate) fn set_module_options(&self, options: c_int) {
        // SAFETY: the context is valid.
        unsafe { (api().set_module_options)(self.raw, options) };
    }

    /// A setting of the engine, by `CONFIG GET`. `None`: the engine does not know it, or has no such command.
    pub(crate) fn setting(&self, name: &CStr) -> Option<Vec<u8>> {
        // SAFETY: the context is valid; `c` takes a C string. A reply, if there is one, is valid until it is freed, and so are its elements; the
        // second one is the value. The functions answer null for an element that does not exist, and for one that is no string.
        unsafe {
            let reply = (api().call)(self.raw, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr());
            if reply.is_null() {
                return None;
            }
            let value = (api().call_reply_array_element)(reply, 1);
            let mut len = 0;
            let bytes = if value.is_null() { std::ptr::null() } else { (api().call_reply_string_ptr)(value, &mut len) };
            let found = (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes, len).to_vec());
            (api().free_call_reply)(reply);
            found
        }
    }

    #[inline]
    pub(crate) fn reply_integer(&self, number: i64) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_long_long)(self.raw, number) };
    }

    /// Begins an array of so many replies.
    #[inline]
    pub(crate) fn reply_array(&self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_array)(self.raw, len as c_long) };
    }

    /// Begins a map of so many pairs of replies: a flat array for a client of RESP2.
    pub(crate) fn reply_map(&self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_map)(self.raw, len as c_long) };
    }

    #[inline]
    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the context is valid, and the engine copies the bytes.
        unsafe { (api().reply_with_string_buffer)(self.raw, bytes.as_ptr(), bytes.len()) };
    }

    /// An unsigned number, which may be greater than the protocol's integers, as a string.
    pub(crate) fn reply_decimal(&self, number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        while rest > 0 || at == digits.len() {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.reply_bytes(&digits[at..]);
    }

    /// Replies with a cursor, as text: few clients have integers of 128 bits.
    pub(crate) fn reply_cursor(&self, cursor: u128) {
        self.reply_bytes(cursor.to_string().as_bytes());
    }

    pub(crate) fn reply_ok(&self) {
        self.reply_simple(c"OK");
    }

    fn reply_simple(&self, text: &CStr) {
        // SAFETY: the context and the string are valid.
        unsafe { (api().reply_with_simple_string)(self.raw, text.as_ptr()) };
    }

    pub(crate) fn reply_null(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().reply_with_null)(self.raw) };
    }

    /// An error; its first word is the code.
    pub(crate) fn reply_error(&self, text: &str) {
        let line = one_line(text);
        // SAFETY: the context and the string are valid.
        unsafe { (api().reply_with_error)(self.raw, line.as_ptr()) };
    }

    /// The engine's error about the number of arguments.
    pub(crate) fn reply_arity(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().wrong_arity)(self.raw) };
    }

    /// Puts the command of this callback into the log and the stream of replicas as it came.
    #[inline]
    pub(crate) fn replicate_verbatim(&self) {
        // SAFETY: the context is valid.
        unsafe { (api().replicate_verbatim)(self.raw) };
    }

    /// Puts a command with these arguments into the log and the stream of replicas.
    pub(crate) fn replicate_args(&self, command: &CStr, args: &[*mut raw::Str]) {
        // SAFETY: `v` takes an array of strings and its length. They are of this call, and the engine retains what it needs.
        unsafe { (api().replicate)(self.raw, command.as_ptr(), c"v".as_ptr(), args.as_ptr(), args.len()) };
    }

    /// As [`Context::replicate_args`]: some arguments of the call, then bytes.
    pub(crate) fn replicate_packed(&self, command: &CStr, args: &[*mut raw::Str], packed: &[u8]) {
        // SAFETY: `v` as above; `b` takes bytes and their number, which the engine copies.
        unsafe {
            (api().replicate)(
                self.raw,
                command.as_ptr(),
                c"vb".as_ptr(),
                args.as_ptr(),
                args.len(),
                packed.as_ptr(),
                packed.len(),
            )
        };
    }

    /// Notifies the engine that the key of an argument was changed: for `WATCH`, client caches and keyspace notifications.
    #[inline]
    pub(crate) fn changed(&self, args: &Args<'_>, event: &CStr) {
        let key = args.raw(1);
        // SAFETY: the context and the string are valid.
        unsafe {
            (api().signal_modified_key)(self.raw, key);
            (api().notify_keyspace_event)(self.raw, raw::NOTIFY_MODULE, event.as_ptr(), key);
        }
    }
}

/// The time by the engine's clock, in Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    // SAFETY: it takes no arguments.
    let now = unsafe { (api().milliseconds)() };
    u64::try_from(now).unwrap_or(0)
}

/// A random number, from the engine's generator. Main thread only.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: eight bytes are written.
    unsafe { (api().get_random_bytes)(bytes.as_mut_ptr(), bytes.len()) };
    u64::from_le_bytes(bytes)
}

/// Whether writes have to wait: clients are paused, for example for a failover.
pub(crate) fn is_paused() -> bool {
    // SAFETY: it takes no arguments.
    unsafe { (api().avoid_replica_traffic)() != 0 }
}
