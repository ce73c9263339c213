//! Opaque types, callbacks and constants.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident)*) => { $(
        #[repr(C)]
        pub(crate) struct $name {
            _opaque: [u8; 0],
        }
    )* };
}

opaque! { Ctx Str Key Io Digest InfoCtx DefragCtx KeyOptCtx CallReply BlockedClient ModuleType Command }

pub(crate) const OK: c_int = 0;
pub(crate) const ERR: c_int = 1;
pub(crate) const API_VERSION: c_int = 1;

pub(crate) const READ: c_int = 1 << 0;
pub(crate) const WRITE: c_int = 1 << 1;
pub(crate) const KEY_TYPE_EMPTY: c_int = 0;

pub(crate) const FLAG_LUA: c_int = 1 << 0;
pub(crate) const FLAG_MULTI: c_int = 1 << 1;
pub(crate) const FLAG_REPLICA: c_int = 1 << 3;
/// Of a replica: clients cannot write to it.
pub(crate) const FLAG_READONLY: c_int = 1 << 4;
pub(crate) const FLAG_CLUSTER: c_int = 1 << 5;
pub(crate) const FLAG_REPLICATED: c_int = 1 << 12;
pub(crate) const FLAG_LOADING: c_int = 1 << 13;
pub(crate) const FLAG_IS_CHILD: c_int = 1 << 20;
pub(crate) const FLAG_DENY_BLOCKING: c_int = 1 << 21;

pub(crate) const NOTIFY_MODULE: c_int = 1 << 13;

pub(crate) const OPTION_HANDLE_IO_ERRORS: c_int = 1 << 0;
pub(crate) const OPTION_NO_IMPLICIT_SIGNAL_MODIFIED: c_int = 1 << 1;
pub(crate) const OPTION_HANDLE_REPL_ASYNC_LOAD: c_int = 1 << 2;
/// Of Valkey 9: its own migration of slots sends the dump of a rewritten log, then commands.
pub(crate) const OPTION_HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

pub(crate) const EVENT_LOADING: u64 = 3;
pub(crate) const EVENT_SHUTDOWN: u64 = 5;
pub(crate) const LOADING_ENDED: u64 = 3;
pub(crate) const LOADING_FAILED: u64 = 4;

pub(crate) type CommandFunc = unsafe extern "C" fn(*mut Ctx, *mut *mut Str, c_int) -> c_int;
pub(crate) type FreePrivateFunc = unsafe extern "C" fn(*mut Ctx, *mut c_void);
pub(crate) type TimerFunc = unsafe extern "C" fn(*mut Ctx, *mut c_void);
pub(crate) type OneShotFunc = unsafe extern "C" fn(*mut c_void);
pub(crate) type InfoFunc = unsafe extern "C" fn(*mut InfoCtx, c_int);
pub(crate) type EventFunc = unsafe extern "C" fn(*mut Ctx, Event, u64, *mut c_void);

/// `RedisModuleEvent`, passed by value.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) version: u64,
}

/// `RedisModuleTypeMethods` in its version 4 (Redis 7.0). A newer engine reads no further than the version says.
#[repr(C)]
pub(crate) struct TypeMethods {
    pub(crate) version: u64,
    pub(crate) rdb_load: Option<unsafe extern "C" fn(*mut Io, c_int) -> *mut c_void>,
    pub(crate) rdb_save: Option<unsafe extern "C" fn(*mut Io, *mut c_void)>,
    pub(crate) aof_rewrite: Option<unsafe extern "C" fn(*mut Io, *mut Str, *mut c_void)>,
    pub(crate) mem_usage: Option<unsafe extern "C" fn(*const c_void) -> usize>,
    pub(crate) digest: Option<unsafe extern "C" fn(*mut Digest, *mut c_void)>,
    pub(crate) free: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) aux_load: Option<unsafe extern "C" fn(*mut Io, c_int, c_int) -> c_int>,
    pub(crate) aux_save: Option<unsafe extern "C" fn(*mut Io, c_int)>,
    pub(crate) aux_save_triggers: c_int,
    pub(crate) free_effort: Option<unsafe extern "C" fn(*mut Str, *const c_void) -> usize>,
    pub(crate) unlink: Option<unsafe extern "C" fn(*mut Str, *const c_void)>,
    pub(crate) copy: Option<unsafe extern "C" fn(*mut Str, *mut Str, *const c_void) -> *mut c_void>,
    pub(crate) defrag: Option<unsafe extern "C" fn(*mut DefragCtx, *mut Str, *mut *mut c_void) -> c_int>,
    pub(crate) mem_usage2: Option<unsafe extern "C" fn(*mut KeyOptCtx, *const c_void, usize) -> usize>,
    pub(crate) free_effort2: Option<unsafe extern "C" fn(*mut KeyOptCtx, *const c_void) -> usize>,
    pub(crate) unlink2: Option<unsafe extern "C" fn(*mut KeyOptCtx, *const c_void)>,
    pub(crate) copy2: Option<unsafe extern "C" fn(*mut KeyOptCtx, *const c_void) -> *mut c_void>,
}

/// The version of [`TypeMethods`].
pub(crate) const TYPE_METHODS_VERSION: u64 = 4;

/// What `RedisModule_GetApi` looks like. It is the first word of the context that OnLoad gets.
pub(crate) type GetApi = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
