//! `CT.MINCRBY` and `CT.PINCRBY`: many increments in one command, each counted alone.
//!
//! An increment that is refused does not hold up the others, and only those that counted are replicated: why one is refused may be a
//! matter of this process (a damaged page, no room), and a replica applies what it is sent. With a token the command counts as a whole
//! or not at all, so that a repeated one cannot be answered differently from the first.

use super::parse::{check_ids, check_records, chunks, field, id, number};
use super::token::{self, Given, TOKEN_ARGS};
use super::{Call, Command, Stop, may_be_applied};
use crate::scratch::{self, Scratch};
use crate::value::Shared;
use std::fmt::Write;
use std::sync::Arc;
use tallystone_compact::{CounterSet, Mode, Refusal};

/// `CT.MINCRBY key id field delta [id field delta …] [TOKEN token TIME ms]`
pub(super) struct MIncrBy;

/// `CT.PINCRBY key packed [TOKEN token TIME ms]`
pub(super) struct PIncrBy;

const ABORTED: &str = "ABORTED another increment of this command was refused, so none has counted";
/// Bytes of an increment: id, field number, delta.
const PACKED_BYTES: usize = 13;
/// Ids whose memory is on its way at the same time. That of a whole command would have left the caches before it is used.
const WARM_BATCH: usize = 32;

/// What became of the increments.
#[derive(Default)]
struct Counted {
    is_repeated: bool,
    /// With their places, in order.
    refused: Vec<(usize, Refused)>,
    /// Increments that have counted.
    applied: usize,
}

/// Why an increment has not counted. Its text is made for the reply: a text for each would take longer than the increments.
enum Refused {
    Why(Refusal),
    /// Another one of the command was refused.
    Aborted,
}

impl Refused {
    /// The text, in a string that is used for all of them.
    fn text<'a>(&self, text: &'a mut String) -> &'a str {
        text.clear();
        match self {
            // Writing to a string does not fail.
            Refused::Why(refusal) => drop(write!(text, "{refusal}")),
            Refused::Aborted => text.push_str(ABORTED),
        }
        text
    }
}

impl Counted {
    fn is_refused(&self, place: usize) -> bool {
        self.refused.binary_search_by_key(&place, |(refused, _)| *refused).is_ok()
    }
}

impl Command for MIncrBy {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let token = token::given(call, MIncrBy::ARGS_MIN)?;
        let end = call.args.len() - if token.is_some() { TOKEN_ARGS } else { 0 };
        let count = (end - 2) / 3;
        if end != 2 + 3 * count {
            return Err(Stop::Arity);
        }
        check_ids(call, count)?;
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            // This check comes first: to find the fields of a command that is too large would take as long as to execute it.
            check_records(count, set.schema())?;
            // The field that was named last, which most increments name again.
            let mut named: Option<(&[u8], u8)> = None;
            for place in (2..end).step_by(3) {
                scratch.ids.push(id(call.args.get(place))?);
                let name = call.args.get(place + 1);
                let field = match named {
                    Some((last, field)) if last == name => field,
                    _ => field(set.schema(), name)?,
                };
                named = Some((name, field));
                scratch.pairs.push((field, number(call.args.get(place + 2))?));
            }
            let counted = count_all(call, shared, set, scratch, token.as_ref())?;
            drop(held);
            call.context.reply_array(count);
            let (mut refused, mut buffer) = (counted.refused.iter().peekable(), String::new());
            for (place, value) in scratch.values.iter().enumerate() {
                match refused.next_if(|(refused, _)| *refused == place) {
                    Some((_, why)) => refuse(call, why.text(&mut buffer)),
                    None => call.context.reply_integer(*value),
                }
            }
            if counted.applied == count {
                call.context.replicate_verbatim();
            } else if counted.applied > 0 {
                let all = call.args.raw_from(1);
                let mut args = vec![all[0]];
                for place in (0..count).filter(|place| !counted.is_refused(*place)) {
                    args.extend_from_slice(&all[1 + 3 * place..4 + 3 * place]);
                }
                call.context.replicate_args(c"CT.MINCRBY", &args);
            }
            if counted.applied > 0 {
                call.changed(key, c"ct.mincrby");
            }
            Ok(())
        })
    }
}

impl Command for PIncrBy {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let token = token::given(call, PIncrBy::ARGS_MIN)?;
        if token.is_none() && call.args.len() != PIncrBy::ARGS_MIN {
            return Err(Stop::Arity);
        }
        let items = chunks::<PACKED_BYTES>(call, call.args.get(2))?;
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            check_records(items.len(), held.set().schema())?;
            for item in items {
                let [id @ .., field, a, b, c, d] = item;
                scratch.ids.push(u64::from_le_bytes(*id));
                scratch.pairs.push((*field, i64::from(i32::from_le_bytes([*a, *b, *c, *d]))));
            }
            let counted = count_all(call, shared, held.set(), scratch, token.as_ref())?;
            drop(held);
            let applied = if counted.is_repeated { items.len() } else { counted.applied };
            call.context.reply_array(1 + counted.refused.len());
            call.context.reply_integer(applied as i64);
            let mut buffer = String::new();
            for (place, why) in &counted.refused {
                call.context.reply_array(2);
                call.context.reply_integer(*place as i64);
                call.context.reply_bytes(why.text(&mut buffer).as_bytes());
            }
            if counted.applied == items.len() {
                call.context.replicate_verbatim();
            } else if counted.applied > 0 {
                let applied = items.iter().enumerate().filter(|(place, _)| !counted.is_refused(*place));
                applied.for_each(|(_, item)| scratch.bytes.extend_from_slice(item));
                call.context.replicate_packed(c"CT.PINCRBY", &call.args.raw_from(1)[..1], &scratch.bytes);
            }
            if counted.applied > 0 {
                call.changed(key, c"ct.pincrby");
            }
            Ok(())
        })
    }
}

/// An error within a reply. No client reads what a replica replies to its primary, and the engine would take an error for a fault.
fn refuse(call: &Call<'_>, text: &str) {
    match call.mode() {
        Mode::Decide => call.context.reply_error(text),
        Mode::Apply => call.context.reply_null(),
    }
}

/// Carries out the increments of `scratch`: the values go there too, one for each.
fn count_all(
    call: &Call<'_>,
    shared: &Arc<Shared>,
    set: &mut CounterSet,
    scratch: &mut Scratch,
    token: Option<&Given<'_>>,
) -> Result<Counted, Stop> {
    call.check_read(shared, set, &scratch.ids)?;
    let mut counted = Counted::default();
    if let Some(token) = token
        && token.is_repeated(call, set)?
    {
        counted.is_repeated = true;
        for (id, (number, _)) in scratch.ids.iter().zip(&scratch.pairs) {
            scratch.values.push(set.read_field(*id, *number, call.fetched)?);
        }
        return Ok(counted);
    }
    let mut mode = Mode::Decide;
    for (place, (id, delta)) in scratch.ids.iter().zip(&scratch.pairs).enumerate() {
        if place.is_multiple_of(WARM_BATCH) {
            set.warm(&scratch.ids[place..scratch.ids.len().min(place + WARM_BATCH)], call.fetched);
        }
        let deltas = std::slice::from_ref(delta);
        let mut done = set.increment(mode, *id, deltas, call.fetched, &mut scratch.values);
        if done.as_ref().is_err_and(may_be_applied) && call.mode() == Mode::Apply {
            mode = Mode::Apply;
            done = set.increment(mode, *id, deltas, call.fetched, &mut scratch.values);
        }
        match done {
            Ok(()) => counted.applied += 1,
            Err(refusal) => {
                scratch.values.push(0);
                counted.refused.push((place, Refused::Why(refusal)));
            }
        }
    }
    if let Some(token) = token {
        if counted.refused.is_empty() || mode == Mode::Apply {
            token.remember(set);
        } else {
            take_back(call, set, scratch, &mut counted);
        }
    }
    Ok(counted)
}

/// Undoes all increments of a command with a token of which one was refused.
fn take_back(call: &Call<'_>, set: &mut CounterSet, scratch: &Scratch, counted: &mut Counted) {
    let refused = std::mem::take(&mut counted.refused);
    let mut refused = refused.into_iter().rev().peekable();
    let places = scratch.ids.iter().zip(&scratch.pairs).zip(&scratch.values).enumerate().rev();
    for (place, ((id, (number, delta)), value)) in places {
        match refused.next_if(|(refused, _)| *refused == place) {
            Some(refused) => counted.refused.push(refused),
            None => {
                let before = [(*number, value.wrapping_sub(*delta))];
                // A new id of the command may have taken the slot of one that became 0: nothing is refused now.
                let undone = set.set(Mode::Apply, *id, &before, call.fetched);
                debug_assert_eq!(undone, Ok(()));
                counted.refused.push((place, Refused::Aborted));
            }
        }
    }
    counted.refused.reverse();
    counted.applied = 0;
}
