//! The table of functions. Each is looked up once, by its name, when the module is loaded.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_ulong, c_ulonglong, c_void};
use std::sync::OnceLock;

use super::types::*;
use super::{Command, CommandInfo};

macro_rules! table {
    (
        required { $($field:ident $name:literal ($($arg:tt)*) $(-> $ret:ty)?;)* }
        optional { $($opt_field:ident $opt_name:literal ($($opt_arg:tt)*) $(-> $opt_ret:ty)?;)* }
    ) => {
        /// The engine's functions.
        pub(crate) struct Api {
            $(pub(crate) $field: unsafe extern "C" fn($($arg)*) $(-> $ret)?,)*
            // Functions that Redis 7.0 lacks.
            $(pub(crate) $opt_field: Option<unsafe extern "C" fn($($opt_arg)*) $(-> $opt_ret)?>,)*
        }

        /// Requests all functions from the engine. Nothing is allocated.
        ///
        /// # Safety
        /// `get` is the engine's `RedisModule_GetApi`.
        unsafe fn look_up(get: GetApi) -> Result<Api, &'static CStr> {
            Ok(Api {
                $($field: {
                    let found = one(get, $name);
                    // SAFETY: an `Option` of a function pointer has the layout of a pointer, and the engine promises the
                    // signature of its header for this name.
                    let function: Option<unsafe extern "C" fn($($arg)*) $(-> $ret)?> = unsafe { std::mem::transmute(found) };
                    function.ok_or($name)?
                },)*
                $($opt_field: {
                    let found = one(get, $opt_name);
                    // SAFETY: as above. A name that is not known stays null, which is `None`.
                    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($opt_arg)*) $(-> $opt_ret)?>>(found) }
                },)*
            })
        }
    };
}

table! {
    required {
        alloc c"RedisModule_Alloc" (usize) -> *mut c_void;
        calloc c"RedisModule_Calloc" (usize, usize) -> *mut c_void;
        realloc c"RedisModule_Realloc" (*mut c_void, usize) -> *mut c_void;
        free c"RedisModule_Free" (*mut c_void);
        get_used_memory_ratio c"RedisModule_GetUsedMemoryRatio" () -> f32;

        set_module_attribs c"RedisModule_SetModuleAttribs" (*mut Ctx, *const c_char, c_int, c_int);
        is_module_name_busy c"RedisModule_IsModuleNameBusy" (*const c_char) -> c_int;
        set_module_options c"RedisModule_SetModuleOptions" (*mut Ctx, c_int);
        create_command c"RedisModule_CreateCommand"
            (*mut Ctx, *const c_char, CommandFunc, *const c_char, c_int, c_int, c_int) -> c_int;
        get_command c"RedisModule_GetCommand" (*mut Ctx, *const c_char) -> *mut Command;
        set_command_info c"RedisModule_SetCommandInfo" (*mut Command, *const CommandInfo) -> c_int;
        create_data_type c"RedisModule_CreateDataType"
            (*mut Ctx, *const c_char, c_int, *const TypeMethods) -> *mut ModuleType;
        register_info_func c"RedisModule_RegisterInfoFunc" (*mut Ctx, InfoFunc) -> c_int;
        subscribe_to_server_event c"RedisModule_SubscribeToServerEvent" (*mut Ctx, Event, EventFunc) -> c_int;
        get_context_flags c"RedisModule_GetContextFlags" (*mut Ctx) -> c_int;
        avoid_replica_traffic c"RedisModule_AvoidReplicaTraffic" () -> c_int;
        milliseconds c"RedisModule_Milliseconds" () -> c_longlong;
        get_random_bytes c"RedisModule_GetRandomBytes" (*mut u8, usize);
        log c"RedisModule_Log" (*mut Ctx, *const c_char, *const c_char, ...);

        string_ptr_len c"RedisModule_StringPtrLen" (*const Str, *mut usize) -> *const u8;
        open_key c"RedisModule_OpenKey" (*mut Ctx, *mut Str, c_int) -> *mut Key;
        close_key c"RedisModule_CloseKey" (*mut Key);
        key_type c"RedisModule_KeyType" (*mut Key) -> c_int;
        module_type_get_type c"RedisModule_ModuleTypeGetType" (*mut Key) -> *mut ModuleType;
        module_type_get_value c"RedisModule_ModuleTypeGetValue" (*mut Key) -> *mut c_void;
        module_type_set_value c"RedisModule_ModuleTypeSetValue" (*mut Key, *mut ModuleType, *mut c_void) -> c_int;
        signal_modified_key c"RedisModule_SignalModifiedKey" (*mut Ctx, *mut Str) -> c_int;
        notify_keyspace_event c"RedisModule_NotifyKeyspaceEvent" (*mut Ctx, c_int, *const c_char, *mut Str) -> c_int;
        replicate c"RedisModule_Replicate" (*mut Ctx, *const c_char, *const c_char, ...) -> c_int;
        replicate_verbatim c"RedisModule_ReplicateVerbatim" (*mut Ctx) -> c_int;

        call c"RedisModule_Call" (*mut Ctx, *const c_char, *const c_char, ...) -> *mut CallReply;
        call_reply_array_element c"RedisModule_CallReplyArrayElement" (*mut CallReply, usize) -> *mut CallReply;
        call_reply_string_ptr c"RedisModule_CallReplyStringPtr" (*mut CallReply, *mut usize) -> *const u8;
        free_call_reply c"RedisModule_FreeCallReply" (*mut CallReply);

        wrong_arity c"RedisModule_WrongArity" (*mut Ctx) -> c_int;
        reply_with_long_long c"RedisModule_ReplyWithLongLong" (*mut Ctx, c_longlong) -> c_int;
        reply_with_error c"RedisModule_ReplyWithError" (*mut Ctx, *const c_char) -> c_int;
        reply_with_simple_string c"RedisModule_ReplyWithSimpleString" (*mut Ctx, *const c_char) -> c_int;
        reply_with_string_buffer c"RedisModule_ReplyWithStringBuffer" (*mut Ctx, *const u8, usize) -> c_int;
        reply_with_array c"RedisModule_ReplyWithArray" (*mut Ctx, c_long) -> c_int;
        reply_with_map c"RedisModule_ReplyWithMap" (*mut Ctx, c_long) -> c_int;
        reply_with_null c"RedisModule_ReplyWithNull" (*mut Ctx) -> c_int;

        save_unsigned c"RedisModule_SaveUnsigned" (*mut Io, u64);
        load_unsigned c"RedisModule_LoadUnsigned" (*mut Io) -> u64;
        save_string_buffer c"RedisModule_SaveStringBuffer" (*mut Io, *const u8, usize);
        load_string_buffer c"RedisModule_LoadStringBuffer" (*mut Io, *mut usize) -> *mut u8;
        is_io_error c"RedisModule_IsIOError" (*mut Io) -> c_int;
        emit_aof c"RedisModule_EmitAOF" (*mut Io, *const c_char, *const c_char, ...);
        get_context_from_io c"RedisModule_GetContextFromIO" (*mut Io) -> *mut Ctx;
        digest_add_string_buffer c"RedisModule_DigestAddStringBuffer" (*mut Digest, *const u8, usize);
        digest_add_long_long c"RedisModule_DigestAddLongLong" (*mut Digest, c_longlong);
        digest_end_sequence c"RedisModule_DigestEndSequence" (*mut Digest);

        defrag_alloc c"RedisModule_DefragAlloc" (*mut DefragCtx, *mut c_void) -> *mut c_void;
        defrag_should_stop c"RedisModule_DefragShouldStop" (*mut DefragCtx) -> c_int;
        defrag_cursor_set c"RedisModule_DefragCursorSet" (*mut DefragCtx, c_ulong) -> c_int;
        defrag_cursor_get c"RedisModule_DefragCursorGet" (*mut DefragCtx, *mut c_ulong) -> c_int;

        info_add_section c"RedisModule_InfoAddSection" (*mut InfoCtx, *const c_char) -> c_int;
        info_add_field c"RedisModule_InfoAddFieldULongLong" (*mut InfoCtx, *const c_char, c_ulonglong) -> c_int;

        get_detached_context c"RedisModule_GetDetachedThreadSafeContext" (*mut Ctx) -> *mut Ctx;
        create_timer c"RedisModule_CreateTimer" (*mut Ctx, c_longlong, TimerFunc, *mut c_void) -> u64;
        event_loop_add_one_shot c"RedisModule_EventLoopAddOneShot" (OneShotFunc, *mut c_void) -> c_int;
        block_client c"RedisModule_BlockClient"
            (*mut Ctx, CommandFunc, CommandFunc, FreePrivateFunc, c_longlong) -> *mut BlockedClient;
        unblock_client c"RedisModule_UnblockClient" (*mut BlockedClient, *mut c_void) -> c_int;
        get_blocked_client_private_data c"RedisModule_GetBlockedClientPrivateData" (*mut Ctx) -> *mut c_void;
        measure_time_start c"RedisModule_BlockedClientMeasureTimeStart" (*mut BlockedClient) -> c_int;
        measure_time_end c"RedisModule_BlockedClientMeasureTimeEnd" (*mut BlockedClient) -> c_int;
    }
    optional {
        set_command_acl_categories c"RedisModule_SetCommandACLCategories" (*mut Command, *const c_char) -> c_int;
        add_acl_category c"RedisModule_AddACLCategory" (*mut Ctx, *const c_char) -> c_int;
    }
}

/// One function, or null if the engine does not have it.
fn one(get: GetApi, name: &CStr) -> *mut c_void {
    let mut found: *mut c_void = std::ptr::null_mut();
    // SAFETY: `get` reads a C string and writes at most one pointer. It leaves the place alone if it does not know the name.
    unsafe { get(name.as_ptr(), &mut found) };
    found
}

static API: OnceLock<Api> = OnceLock::new();

/// Resolves all functions, from the context of `RedisModule_OnLoad`. The error is the name of a function that is missing.
///
/// # Safety
/// `ctx` is the context that the engine passed to OnLoad.
pub(crate) unsafe fn resolve(ctx: *mut Ctx) -> Result<(), &'static CStr> {
    // SAFETY: the first word of this context is the address of RedisModule_GetApi; the header's own start relies on it.
    let found = unsafe {
        let get = *ctx.cast::<GetApi>();
        look_up(get)?
    };
    let _ = API.set(found);
    Ok(())
}

/// The functions. Before OnLoad has resolved them there is nothing to call.
#[inline]
pub(crate) fn api() -> &'static Api {
    API.get().expect("the engine's functions are resolved first")
}

/// As [`api`], for the allocator, which may be called earlier.
#[inline]
pub(crate) fn api_if_resolved() -> Option<&'static Api> {
    API.get()
}
