//! Snapshots: a value is a sequence of pieces, each after a 1, and a 0 after the last. An AOF that is rewritten without a snapshot
//! in front has a CT.RESTORE for each piece.

use super::origin::Origin;
use crate::context::{Context, Level, log};
use crate::raw::{self, api};
use crate::value::{Held, Value};
use crate::{background, datatype, guard};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use tallystone_compact::{Mode, PageFault, PageRef, Refusal};

const PIECE: u64 = 1;
const END: u64 = 0;

/// What to do with a page that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnReadError {
    /// End the dump.
    Fail,
    /// Read it again, and then go on as if it were damaged: the caller cannot fail.
    LeaveOut,
}

/// Attempts to read a page that must not be left out.
const ATTEMPTS: u32 = 3;
/// Pages that the log names for each value.
const NAMED_MAX: u32 = 16;

/// Gives all pieces of a value to `emit`. Returns whether they are the whole value. The log names each page whose records are not in
/// what is written, because that may replace the last copy of them.
fn dump(value: &Value, on_read_error: OnReadError, emit: &mut dyn FnMut(&[u8])) -> bool {
    let mut held = value.shared.lock_anyway();
    let (set, files) = held.parts();
    let mut named = 0;
    let mut read = |page: PageRef| {
        let mut read = files.read(page);
        for _ in 1..ATTEMPTS {
            if matches!(read, Err(PageFault::Unread(_))) && on_read_error == OnReadError::LeaveOut {
                read = files.read(page);
            }
        }
        let Err(fault) = &read else { return read };
        named += 1;
        if named <= NAMED_MAX {
            let name = files.get(page.file).map_or("a file", |file| &file.name);
            log(
                Level::Warning,
                &format!("page {} of {name} is missing in a copy of a counter set: {fault}", page.page),
            );
        }
        match (fault, on_read_error) {
            (PageFault::Unread(_), OnReadError::LeaveOut) => Err(PageFault::Missing),
            _ => read,
        }
    };
    set.dump(&mut read, emit).is_ok()
}

/// The same for the engine. A callback cannot say that it failed, but a child can end: the engine then keeps its last snapshot, or its
/// log as it is.
fn dump_for(io: *mut raw::Io, value: *mut c_void, emit: &mut dyn FnMut(&[u8])) {
    let is_child = is_child(io);
    let is_whole = guard::or(false, || {
        // SAFETY: the engine's value, which it holds while it saves or rewrites.
        let value = unsafe { datatype::from_raw(value) };
        if value.shared.lock().is_none() {
            log(Level::Warning, "a counter set was left half-changed by a bug");
            if is_child {
                return false;
            }
        }
        dump(value, if is_child { OnReadError::Fail } else { OnReadError::LeaveOut }, emit)
    });
    if !is_whole && is_child {
        log(Level::Warning, "a counter set is not saved: the child process ends");
        // By a signal: the engine then removes what it has written, which it does not after an exit code. And nothing that
        // runs at an exit can wait for a thread that the fork has not copied.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

pub(super) unsafe extern "C" fn save(io: *mut raw::Io, value: *mut c_void) {
    dump_for(io, value, &mut |piece| {
        // SAFETY: the engine's stream, valid for this call; it copies the bytes.
        unsafe {
            (api().save_unsigned)(io, PIECE);
            (api().save_string_buffer)(io, piece.as_ptr(), piece.len());
        }
    });
    // SAFETY: as above.
    unsafe { (api().save_unsigned)(io, END) };
}

fn is_child(io: *mut raw::Io) -> bool {
    // SAFETY: the engine's stream, valid for this call, and the context that belongs to it.
    let flags = unsafe { (api().get_context_flags)((api().get_context_from_io)(io)) };
    flags & raw::FLAG_IS_CHILD != 0
}

pub(super) unsafe extern "C" fn load(io: *mut raw::Io, encoding: c_int) -> *mut c_void {
    let origin = Origin::now();
    let value = guard::or(null_mut(), || {
        if encoding != datatype::ENCODING {
            log(Level::Warning, &format!("a counter set was written by a later version ({encoding})"));
            return null_mut();
        }
        match read_pieces(io, origin) {
            Ok(held) => {
                let value = Value::from_held(held);
                // SAFETY: the engine's stream, valid for this call, and the context that belongs to it.
                let context = unsafe { Context::new((api().get_context_from_io)(io)) };
                background::touch(&context, &value.shared);
                datatype::into_raw(value)
            }
            Err(reason) => {
                log(Level::Warning, &format!("a counter set cannot be loaded: {reason}"));
                null_mut()
            }
        }
    });
    // While it loads, the engine itself ends if a value is refused, also one of a RESTORE in its log. A connection to the primary that
    // breaks in the midst of a value ends nothing.
    if value.is_null() && origin == Origin::Primary {
        Origin::end_without_key("RESTORE");
    }
    value
}

fn read_pieces(io: *mut raw::Io, origin: Origin) -> Result<Held, String> {
    let held = if origin.is_replicated() {
        // The stream cannot be read twice.
        let mut pieces = Vec::new();
        for_each_piece(io, &mut |piece| {
            pieces.push(piece.to_vec());
            Ok(())
        })?;
        assemble(origin, &|emit| {
            for piece in &pieces {
                emit(piece);
            }
            true
        })?
    } else {
        let mut held = Held::empty();
        for_each_piece(io, &mut |piece| held.restore(Mode::Apply, piece).map_err(|refusal| refusal.to_string()))?;
        held
    };
    if held.has_set() { Ok(held) } else { Err("the snapshot is broken".to_owned()) }
}

type TakePiece<'a> = dyn FnMut(&[u8]) -> Result<(), String> + 'a;

fn for_each_piece(io: *mut raw::Io, take: &mut TakePiece<'_>) -> Result<(), String> {
    loop {
        // SAFETY: the engine's stream, valid for this call. After an error it gives zeros and null pointers.
        let (kind, is_broken) = unsafe { ((api().load_unsigned)(io), (api().is_io_error)(io) != 0) };
        match kind {
            _ if is_broken => return Err("the snapshot ends too early".to_owned()),
            PIECE => read_piece(io, take)?,
            END => return Ok(()),
            _ => return Err("the snapshot is broken".to_owned()),
        }
    }
}

fn read_piece(io: *mut raw::Io, take: &mut TakePiece<'_>) -> Result<(), String> {
    let mut len = 0;
    // SAFETY: as above; the bytes are ours until we free them.
    let bytes = unsafe { (api().load_string_buffer)(io, &mut len) };
    if bytes.is_null() {
        return Err("the snapshot ends too early".to_owned());
    }
    // SAFETY: the engine returned this many bytes.
    let taken = take(unsafe { std::slice::from_raw_parts(bytes, len) });
    // SAFETY: the bytes are the engine's, and ours to free.
    unsafe { (api().free)(bytes.cast()) };
    taken
}

pub(super) unsafe extern "C" fn rewrite(io: *mut raw::Io, key: *mut raw::Str, value: *mut c_void) {
    dump_for(io, value, &mut |piece| {
        // SAFETY: `s` takes a string, `b` bytes and their number. The engine copies them.
        unsafe {
            (api().emit_aof)(io, c"CT.RESTORE".as_ptr(), c"sb".as_ptr(), key, piece.as_ptr(), piece.len());
        }
    });
}

/// An equal value with separate files.
pub(super) fn copy_of(value: &Value, origin: Origin) -> Result<Value, String> {
    if value.shared.lock().is_none() {
        return Err("the set was left half-changed by a bug".to_owned());
    }
    // The primary has these records. Where they are missing here, the copy refuses their ids, as it does those of damaged pages.
    let on_read_error = if origin.is_replicated() { OnReadError::LeaveOut } else { OnReadError::Fail };
    assemble(origin, &|emit| dump(value, on_read_error, emit)).map(Value::from_held)
}

/// Gives all pieces of a dump to its argument, and returns whether they are the whole value.
type Pieces<'a> = dyn Fn(&mut dyn FnMut(&[u8])) -> bool + 'a;

/// A set of all these pieces. A replica makes what its primary has accepted even if no file can be written: then it keeps the cold tables
/// in memory, until there is room for files.
fn assemble(origin: Origin, pieces: &Pieces<'_>) -> Result<Held, String> {
    match take_all(pieces, |held, piece| held.restore(Mode::Apply, piece)) {
        Err(reason) if origin.is_replicated() => {
            let held = take_all(pieces, Held::restore_in_memory)
                .map_err(|other| format!("{reason}; nor can it be kept in memory: {other}"))?;
            log(Level::Warning, &format!("the cold tables of a counter set stay in memory: {reason}"));
            Ok(held)
        }
        taken => taken,
    }
}

fn take_all(pieces: &Pieces<'_>, take: fn(&mut Held, &[u8]) -> Result<(), Refusal>) -> Result<Held, String> {
    let mut held = Held::empty();
    let mut failed: Option<Refusal> = None;
    let is_whole = pieces(&mut |piece: &[u8]| {
        if failed.is_none() {
            failed = take(&mut held, piece).err();
        }
    });
    match failed {
        Some(refusal) => Err(refusal.to_string()),
        None if is_whole => Ok(held),
        None => Err("a page of a cold table cannot be read".to_owned()),
    }
}
