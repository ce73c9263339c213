//! The structures of `RedisModule_SetCommandInfo`.

use std::ffi::{c_char, c_int};
use std::ptr::null;

pub(crate) const ARG_STRING: c_int = 0;
pub(crate) const ARG_INTEGER: c_int = 1;
pub(crate) const ARG_KEY: c_int = 3;
pub(crate) const ARG_UNIX_TIME: c_int = 5;
pub(crate) const ARG_ONE_OF: c_int = 7;
pub(crate) const ARG_BLOCK: c_int = 8;

pub(crate) const ARG_OPTIONAL: c_int = 1 << 0;
pub(crate) const ARG_MULTIPLE: c_int = 1 << 1;

pub(crate) const KEY_READ_ONLY: u64 = 1 << 0;
pub(crate) const KEY_READ_WRITE: u64 = 1 << 1;
pub(crate) const KEY_ACCESS: u64 = 1 << 4;
pub(crate) const KEY_UPDATE: u64 = 1 << 5;
pub(crate) const KEY_INSERT: u64 = 1 << 6;

pub(crate) const BEGIN_SEARCH_INDEX: c_int = 2;
pub(crate) const FIND_KEYS_RANGE: c_int = 2;

#[repr(C)]
pub(crate) struct CommandArg {
    pub(crate) name: *const c_char,
    pub(crate) kind: c_int,
    pub(crate) key_spec_index: c_int,
    pub(crate) token: *const c_char,
    pub(crate) summary: *const c_char,
    pub(crate) since: *const c_char,
    pub(crate) flags: c_int,
    pub(crate) deprecated_since: *const c_char,
    pub(crate) subargs: *mut CommandArg,
    pub(crate) display_text: *const c_char,
}

impl CommandArg {
    /// The entry that ends an array of arguments.
    pub(crate) const END: CommandArg = CommandArg {
        name: null(),
        kind: 0,
        key_spec_index: 0,
        token: null(),
        summary: null(),
        since: null(),
        flags: 0,
        deprecated_since: null(),
        subargs: std::ptr::null_mut(),
        display_text: null(),
    };
}

#[repr(C)]
pub(crate) struct HistoryEntry {
    since: *const c_char,
    changes: *const c_char,
}

/// A key at a fixed place. The header has unions here; only their larger variants are written down, with the same layout.
#[repr(C)]
pub(crate) struct KeySpec {
    pub(crate) notes: *const c_char,
    pub(crate) flags: u64,
    pub(crate) begin_search: c_int,
    pub(crate) begin: BeginSearch,
    pub(crate) find_keys: c_int,
    pub(crate) find: FindKeys,
}

#[repr(C)]
pub(crate) union BeginSearch {
    pub(crate) position: c_int,
    keyword: Keyword,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Keyword {
    keyword: *const c_char,
    start_from: c_int,
}

#[repr(C)]
pub(crate) struct FindKeys {
    pub(crate) last_key: c_int,
    pub(crate) step: c_int,
    pub(crate) limit: c_int,
}

impl KeySpec {
    /// One key, the first argument.
    pub(crate) const fn first_argument(flags: u64) -> KeySpec {
        KeySpec {
            notes: null(),
            flags,
            begin_search: BEGIN_SEARCH_INDEX,
            begin: BeginSearch { position: 1 },
            find_keys: FIND_KEYS_RANGE,
            find: FindKeys { last_key: 0, step: 1, limit: 0 },
        }
    }

    /// The entry that ends an array of key specs.
    pub(crate) const END: KeySpec = KeySpec { begin_search: 0, ..KeySpec::first_argument(0) };
}

#[repr(C)]
pub(crate) struct CommandInfoVersion {
    version: c_int,
    history_entry_bytes: usize,
    key_spec_bytes: usize,
    arg_bytes: usize,
}

/// The sizes of our structures: the engine steps through arrays by them, so it may know more or fewer members.
pub(crate) static COMMAND_INFO_VERSION: CommandInfoVersion = CommandInfoVersion {
    version: 1,
    history_entry_bytes: size_of::<HistoryEntry>(),
    key_spec_bytes: size_of::<KeySpec>(),
    arg_bytes: size_of::<CommandArg>(),
};

#[repr(C)]
pub(crate) struct CommandInfo {
    pub(crate) version: *const CommandInfoVersion,
    pub(crate) summary: *const c_char,
    pub(crate) complexity: *const c_char,
    pub(crate) since: *const c_char,
    pub(crate) history: *mut HistoryEntry,
    pub(crate) tips: *const c_char,
    pub(crate) arity: c_int,
    pub(crate) key_specs: *mut KeySpec,
    pub(crate) args: *mut CommandArg,
}
