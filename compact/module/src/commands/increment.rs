//! `CT.INCRBY`: one id, all or nothing.

use super::parse::{id, pairs};
use super::token::{self, TOKEN_ARGS};
use super::{Call, Command, Stop, Unread};
use crate::scratch;
use tallystone_compact::{Mode, Refusal};

/// `CT.INCRBY key id field delta [field delta …] [TOKEN token TIME ms]`
pub(super) struct IncrBy;

impl Command for IncrBy {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    #[inline]
    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let token = token::given(call, IncrBy::ARGS_MIN)?;
        let end = call.args.len() - if token.is_some() { TOKEN_ARGS } else { 0 };
        let id = id(call.args.get(2))?;
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            pairs(call, set.schema(), (3, end), &mut scratch.pairs)?;
            let is_repeated = match &token {
                Some(token) => token.is_repeated(call, set)?,
                None => false,
            };
            let (deltas, values) = (&scratch.pairs, &mut scratch.values);
            let done = if is_repeated {
                deltas.iter().try_for_each(|(number, _)| {
                    values.push(set.read_field(id, *number, call.fetched)?);
                    Ok(())
                })
            } else {
                match set.increment(Mode::Decide, id, deltas, call.fetched, values) {
                    Err(Refusal::Cold | Refusal::Damaged(_) | Refusal::Full) if call.mode() == Mode::Apply => {
                        set.increment(Mode::Apply, id, deltas, call.fetched, values)
                    }
                    done => done,
                }
            };
            match done {
                Ok(()) => {}
                Err(Refusal::Cold) => {
                    let pages = set.unread([id].into_iter(), call.fetched);
                    return Err(Stop::Unread(Unread { shared: shared.clone(), pages, ids: vec![id] }));
                }
                Err(refusal) => return Err(refusal.into()),
            }
            if let Some(token) = token.filter(|_| !is_repeated) {
                token.remember(set);
            }
            drop(held);
            call.context.reply_array(values.len());
            values.iter().for_each(|value| call.context.reply_integer(*value));
            if !is_repeated {
                call.context.replicate_verbatim();
                call.changed(shared, c"ct.incrby");
            }
            Ok(())
        })
    }
}
