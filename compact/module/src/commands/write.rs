//! `CT.SET` and `CT.DEL`.

use super::parse::{check_records, id, ids, pairs};
use super::{Call, Command, Stop};
use crate::scratch;
use tallystone_compact::Mode;

/// `CT.SET key id field value [field value …]`
pub(super) struct Set;

/// `CT.DEL key id [id …]`
pub(super) struct Del;

impl Command for Set {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let id = id(call.args.get(2))?;
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            pairs(call, set.schema(), (3, call.args.len()), &mut scratch.pairs)?;
            let done = call.change(set, |set, mode| set.set(mode, id, &scratch.pairs, call.fetched));
            if let Err(refusal) = done {
                return Err(call.stop(refusal, shared, set, id));
            }
            drop(held);
            call.context.reply_ok();
            call.context.replicate_verbatim();
            call.changed(key, c"ct.set");
            Ok(())
        })
    }
}

impl Command for Del {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        scratch::with(|scratch| {
            ids(call, 2, &mut scratch.ids)?;
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            check_records(scratch.ids.len(), set.schema())?;
            if call.mode() == Mode::Apply {
                // The primary has checked whether there was something to delete.
                let zeros: Vec<(u8, i64)> = set.schema().live().map(|(number, _)| (number, 0)).collect();
                for id in &scratch.ids {
                    set.set(Mode::Apply, *id, &zeros, call.fetched)?;
                }
                drop(held);
                call.context.reply_integer(scratch.ids.len() as i64);
                call.context.replicate_verbatim();
                call.changed(key, c"ct.del");
                return Ok(());
            }
            call.check_read(shared, set, &scratch.ids)?;
            set.warm(&scratch.ids, call.fetched);
            let mut deleted = vec![call.args.raw(1)];
            let mut refused = None;
            for (place, id) in scratch.ids.iter().enumerate() {
                match set.delete(Mode::Decide, *id, call.fetched) {
                    Ok(true) => deleted.push(call.args.raw(2 + place)),
                    Ok(false) => {}
                    Err(refusal) => refused = Some(refusal),
                }
            }
            drop(held);
            let count = deleted.len() - 1;
            match refused {
                // The others are deleted. To say so is not worth another form of reply: the command can be repeated.
                Some(refusal) => call.context.reply_error(&refusal.to_string()),
                None => call.context.reply_integer(count as i64),
            }
            if count > 0 {
                call.context.replicate_args(c"CT.DEL", &deleted);
                call.changed(key, c"ct.del");
            }
            Ok(())
        })
    }
}
