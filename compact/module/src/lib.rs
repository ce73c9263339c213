//! The module of Redis and Valkey that hosts counter sets as a type of value (W1).
//!
//! What lives here: the engine's functions (`raw`), commands, the callbacks of the type, threads that read and write the files of
//! cold tables. What may not: how counters are stored; that is the pure crate `tallystone-compact`.
//!
//! Each counter set is used by the engine's main thread alone. Other threads get what they need as jobs, and give back results. A forked
//! child has no threads of ours, so what it needs (sets, open files) is under locks that only the main thread takes.
//!
//! `unsafe` is allowed in this crate, because C calls it and is called. It is kept in `raw`, `context`, `args`, `key`, `memory`,
//! `datatype`, `blocked`, `latest`, the callbacks of `info` and `background`, and the entry points of commands. What a command does is safe
//! code.

#![cfg_attr(test, allow(dead_code, reason = "tests use the allocator of the system, not the one of the engine"))]

mod args;
mod background;
mod blocked;
mod commands;
mod config;
mod context;
mod datatype;
mod files;
mod guard;
mod info;
mod key;
mod latest;
mod main_thread;
mod manifest;
mod memory;
mod raw;
mod readers;
mod reaper;
mod scratch;
mod sums;
mod value;
mod writer;

use context::Context;
use raw::api;
use std::ffi::{CStr, c_int};

/// The engine's allocator: its memory figures and limits count what the module uses.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: memory::EngineAllocator = memory::EngineAllocator;

const NAME: &CStr = c"tallystone_compact";
/// The version of the module: major, minor and patch in two digits each.
const VERSION: c_int = 100;

/// What the engine calls first.
///
/// # Safety
/// The engine passes a valid context and `argc` arguments.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(ctx: *mut raw::Ctx, argv: *mut *mut raw::Str, argc: c_int) -> c_int {
    // SAFETY: this is the context of OnLoad.
    if let Err(missing) = unsafe { raw::resolve(ctx) } {
        // The engine reports that the module failed to start. There is no function to say more with: this one is printed as is.
        eprintln!("tallystone_compact needs Redis 7.0 or newer, or Valkey: {} is missing", missing.to_string_lossy());
        return raw::ERR;
    }
    guard::or(raw::ERR, || {
        // SAFETY: the name outlives the module, and the context is that of OnLoad.
        unsafe {
            if (api().is_module_name_busy)(NAME.as_ptr()) != 0 {
                return raw::ERR;
            }
            (api().set_module_attribs)(ctx, NAME.as_ptr(), VERSION, raw::API_VERSION);
        }
        guard::log_panics();
        // SAFETY: the engine's arguments, valid for this call.
        let (context, args) = unsafe { (Context::new(ctx), args::Args::new(argv, argc)) };
        match load(&context, &args) {
            Ok(()) => raw::OK,
            Err(reason) => {
                context::log(context::Level::Warning, &reason);
                raw::ERR
            }
        }
    })
}

fn load(context: &Context, args: &args::Args<'_>) -> Result<(), String> {
    main_thread::note();
    let config = config::Config::parse(args)?;
    manifest::check(context)?;
    let (removed, held) = files::open_folder(&config.dir)?;
    let held_files = held.len();
    files::sweep_later(held);
    let files_max = files::raise_open_files_limit();
    readers::start(config.readers);
    context.set_module_options(
        raw::OPTION_HANDLE_IO_ERRORS
            | raw::OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
            | raw::OPTION_HANDLE_REPL_ASYNC_LOAD
            | raw::OPTION_HANDLE_ATOMIC_SLOT_MIGRATION,
    );
    datatype::register(context)?;
    commands::register(context)?;
    info::register(context)?;
    background::register(context)?;
    let folder = config.dir.display();
    context::log(
        context::Level::Notice,
        &format!(
            "at most {files_max} cold tables in {folder}, {} readers; {removed} files of an earlier process removed, \
             {held_files} of another one left until it ends",
            config.readers
        ),
    );
    Ok(())
}
