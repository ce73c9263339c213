//! `CT.INCRBY`: one id, all or nothing.

use super::parse::{id, pairs};
use super::token::{self, TOKEN_ARGS};
use super::{Call, Command, Stop};
use crate::{latest, scratch};

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
        let is_near = latest::prefetch(call.args, id);
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            latest::remember(call.args, shared);
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            if !is_near {
                set.approach(id);
            }
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
                call.change(set, |set, mode| set.increment(mode, id, deltas, call.fetched, values))
            };
            if let Err(refusal) = done {
                return Err(call.stop(refusal, shared, set, id));
            }
            if let Some(token) = token.filter(|_| !is_repeated) {
                token.remember(set);
            }
            drop(held);
            call.context.reply_array(values.len());
            values.iter().for_each(|value| call.context.reply_integer(*value));
            if !is_repeated {
                call.context.replicate_verbatim();
                call.changed(key, c"ct.incrby");
            }
            Ok(())
        })
    }
}
