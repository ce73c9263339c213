//! The commands. One file per family; each command checks and does everything before it replies.
//!
//! What lives here: arguments, limits, replies, what is replicated. What may not: `unsafe`, but for the entry points of this file.

mod alter;
mod create;
mod increment;
mod inspect;
mod newer;
mod packed;
mod parse;
mod read;
mod restore;
mod stop;
mod table;
mod token;
mod write;

pub(crate) use stop::{Stop, Unread};
pub(crate) use table::register;

use crate::args::Args;
use crate::blocked::{self, pages};
use crate::context::{Context, is_paused};
use crate::key::Key;
use crate::raw;
use crate::value::Shared;
use crate::{background, guard, reaper};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::Arc;
use tallystone_compact::{CounterSet, Fetched, Mode, Refusal};

/// Pages that a transaction or a script may read while the engine waits.
const IN_PLACE_MAX: usize = 16;

/// The key of a command has got another set while pages of the earlier one were read.
const MOVED_ON: Stop =
    Stop::text("TRYAGAIN the key was replaced while its records were read from disk; nothing was changed");

/// A command.
pub(crate) trait Command {
    /// Whether it may change its key.
    const IS_WRITE: bool;
    /// Arguments at least, the name included.
    const ARGS_MIN: usize;

    /// Carries it out and replies; or returns why it did not, and has neither changed anything nor replied.
    fn run(call: &Call<'_>) -> Result<(), Stop>;
}

/// One call of a command.
pub(crate) struct Call<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) args: &'a Args<'a>,
    pub(crate) fetched: &'a Fetched,
    mode: Cell<Option<Mode>>,
}

impl<'a> Call<'a> {
    /// Opens the key to read.
    #[inline]
    pub(crate) fn open_read(&self) -> Key<'a> {
        Key::open(self.context, self.args, false)
    }

    /// Opens the key to write.
    #[inline]
    pub(crate) fn open_write(&self) -> Key<'a> {
        Key::open(self.context, self.args, true)
    }

    /// Whether the command was accepted before: by the primary, or before a restart. It takes a while to find out, so it is determined only
    /// where it matters.
    pub(crate) fn mode(&self) -> Mode {
        let find_out = || {
            let is_accepted = self.context.flags() & (raw::FLAG_REPLICATED | raw::FLAG_LOADING) != 0;
            if is_accepted { Mode::Apply } else { Mode::Decide }
        };
        let mode = self.mode.get().unwrap_or_else(find_out);
        self.mode.set(Some(mode));
        mode
    }

    /// Changes one id. What a primary has accepted is applied, whatever this process lacks.
    #[inline]
    pub(crate) fn change(
        &self,
        set: &mut CounterSet,
        mut change: impl FnMut(&mut CounterSet, Mode) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match change(set, Mode::Decide) {
            Err(refusal) if may_be_applied(&refusal) && self.mode() == Mode::Apply => change(set, Mode::Apply),
            done => done,
        }
    }

    /// Stops a command that has to wait for pages of these ids. What a primary has accepted waits for none.
    pub(crate) fn check_read(&self, shared: &Arc<Shared>, set: &mut CounterSet, ids: &[u64]) -> Result<(), Stop> {
        if set.is_complete(self.fetched) {
            return Ok(());
        }
        let mut along = Fetched::none();
        let needs = match self.fetched.is_empty() {
            true => set.first_unread(ids, &mut along),
            false => set.unread(ids.iter().copied(), self.fetched),
        };
        if needs.is_empty() || self.mode() == Mode::Apply {
            return Ok(());
        }
        Err(Stop::Unread(Box::new(Unread { shared: shared.clone(), needs, along, ids: ids.to_vec() })))
    }

    /// Why a command on one id stops: its page is to be read, or the set refuses.
    #[cold]
    pub(crate) fn stop(&self, refusal: Refusal, shared: &Arc<Shared>, set: &mut CounterSet, id: u64) -> Stop {
        if refusal != Refusal::Cold || self.mode() == Mode::Apply {
            return refusal.into();
        }
        match self.check_read(shared, set, &[id]) {
            Err(stop) => stop,
            // The cache took its record up only now. The command runs again, and finds it.
            Ok(()) => {
                let (needs, along) = (Vec::new(), Fetched::none());
                Stop::Unread(Box::new(Unread { shared: shared.clone(), needs, along, ids: vec![id] }))
            }
        }
    }

    /// Runs after a change: schedules background work, then notifies watchers and other modules. It closes the key before it notifies,
    /// because a module may delete the key then.
    #[inline]
    pub(crate) fn changed(&self, key: Key<'_>, event: &CStr) {
        if let Ok(shared) = key.set_in_any_state() {
            background::touch(self.context, shared);
        }
        drop(key);
        self.context.changed(self.args, event);
    }
}

/// Whether a replica carries out a command that this refuses: its primary had what this process lacks.
fn may_be_applied(refusal: &Refusal) -> bool {
    refusal.lacks_record() || *refusal == Refusal::Full
}

/// What the engine calls for a command.
pub(crate) unsafe extern "C" fn entry<C: Command>(ctx: *mut raw::Ctx, argv: *mut *mut raw::Str, argc: c_int) -> c_int {
    // SAFETY: the context and arguments of this callback.
    let (context, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    guarded(&context, || match attempt::<C>(&context, &args, &Fetched::none()) {
        Ok(()) => {}
        Err(Stop::Unread(unread)) if !unread.needs.is_empty() && may_block(&context) => {
            blocked::wait(&context, *unread, C::IS_WRITE, entry_resumed::<C>)
        }
        Err(Stop::Unread(unread)) => in_place::<C>(&context, &args, &mut Fetched::none(), *unread, Stop::Cold),
        Err(stop) => stop.reply(&context),
    })
}

/// What the engine calls when the pages of a command have been read.
unsafe extern "C" fn entry_resumed<C: Command>(ctx: *mut raw::Ctx, argv: *mut *mut raw::Str, argc: c_int) -> c_int {
    // SAFETY: the context and arguments of this callback.
    let (context, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    guarded(&context, || {
        // SAFETY: this is the reply callback of a client that was unblocked with its pages.
        let Some(mut fetched) = (unsafe { blocked::take_fetched(&context) }) else {
            return context.reply_error(&format!("{}; nothing was changed", blocked::TOO_LATE));
        };
        resume::<C>(&context, &args, &mut fetched);
        reaper::free_pages(fetched);
    })
}

/// Runs a command again, with its pages.
fn resume<C: Command>(context: &Context<'_>, args: &Args<'_>, fetched: &mut Fetched) {
    if C::IS_WRITE && is_paused() {
        return context.reply_error("TRYAGAIN clients were paused in this moment; nothing was changed");
    }
    match attempt::<C>(context, args, fetched) {
        Ok(()) => {}
        Err(Stop::Unread(unread)) => in_place::<C>(context, args, fetched, *unread, MOVED_ON),
        Err(Stop::NoSet) if context.flags() & raw::FLAG_CLUSTER != 0 => {
            context.reply_error("TRYAGAIN the key was deleted or moved while its records were read from disk");
        }
        Err(stop) => stop.reply(context),
    }
}

#[inline]
fn guarded(context: &Context<'_>, run: impl FnOnce()) -> c_int {
    let done = guard::or(false, || {
        run();
        true
    });
    if !done {
        context.reply_error("ERR a bug in the module; the log of the server says more");
    }
    raw::OK
}

#[inline]
fn attempt<C: Command>(context: &Context<'_>, args: &Args<'_>, fetched: &Fetched) -> Result<(), Stop> {
    if args.len() < C::ARGS_MIN {
        return Err(Stop::Arity);
    }
    C::run(&Call { context, args, fetched, mode: Cell::new(None) })
}

/// A replica that serves its counters while it loads those of its primary (`repl-diskless-load swapdb`) unblocks no client meanwhile, so a
/// command must not block.
fn may_block(context: &Context<'_>) -> bool {
    !background::is_loading() && context.flags() & (raw::FLAG_DENY_BLOCKING | raw::FLAG_MULTI | raw::FLAG_LUA) == 0
}

/// Reads a few pages while the engine waits, and runs the command with them. `too_many`: the answer if they are not enough.
fn in_place<C: Command>(context: &Context<'_>, args: &Args<'_>, fetched: &mut Fetched, unread: Unread, too_many: Stop) {
    let Unread { shared, needs, along, .. } = unread;
    if pages(&needs).count() > IN_PLACE_MAX {
        return too_many.reply(context);
    }
    fetched.append(along);
    if let Some(held) = shared.lock() {
        for needs in pages(&needs) {
            fetched.append(Fetched::of(needs[0].page, needs, held.files.read(needs[0].page)));
        }
    }
    match attempt::<C>(context, args, fetched) {
        Ok(()) => {}
        Err(Stop::Unread(_)) => too_many.reply(context),
        Err(stop) => stop.reply(context),
    }
}
