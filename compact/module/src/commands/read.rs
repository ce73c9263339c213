//! `CT.GET`, `CT.MGET` and `CT.PGET`.

use super::parse::{FIELDS_MAX, check_values, field, id, ids, packed_ids};
use super::{Call, Command, Stop};
use crate::latest;
use crate::scratch::{self, Scratch};
use crate::value::Shared;
use std::sync::Arc;
use tallystone_compact::CounterSet;

/// `CT.GET key id [field …]`
pub(super) struct Get;

/// `CT.MGET key id [id …]`
pub(super) struct MGet;

/// `CT.PGET key packed`
pub(super) struct PGet;

impl Command for Get {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 3;

    #[inline]
    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let id = id(call.args.get(2))?;
        let is_near = latest::prefetch(call.args, id);
        scratch::with(|scratch| {
            let key = call.open_read();
            let shared = key.set()?;
            latest::remember(call.args, shared);
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            if !is_near {
                set.approach(id);
            }
            if call.args.len() - 3 > FIELDS_MAX {
                return Err(Stop::text("ERR a command has at most 256 fields for an id"));
            }
            for place in 3..call.args.len() {
                scratch.fields.push(field(set.schema(), call.args.get(place))?);
            }
            if let Err(refusal) = set.read(id, call.fetched, &mut scratch.values) {
                return Err(call.stop(refusal, shared, set, id));
            }
            let values = &scratch.values;
            if scratch.fields.is_empty() {
                drop(held);
                reply(call, values);
                return Ok(());
            }
            call.context.reply_array(scratch.fields.len());
            for named in &scratch.fields {
                let place = set.schema().live().position(|(number, _)| number == *named);
                call.context.reply_integer(place.map_or(0, |place| values[place]));
            }
            Ok(())
        })
    }
}

impl Command for MGet {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        scratch::with(|scratch| {
            ids(call, 2, &mut scratch.ids)?;
            let key = call.open_read();
            read_all(call, key.set()?, scratch)?;
            call.context.reply_array(scratch.ids.len());
            let fields = scratch.values.len() / scratch.ids.len();
            scratch.values.chunks(fields).for_each(|values| reply(call, values));
            Ok(())
        })
    }
}

impl Command for PGet {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != PGet::ARGS_MIN {
            return Err(Stop::Arity);
        }
        scratch::with(|scratch| {
            packed_ids(call, call.args.get(2), &mut scratch.ids)?;
            let key = call.open_read();
            read_all(call, key.set()?, scratch)?;
            scratch.bytes.extend(scratch.values.iter().flat_map(|value| value.to_le_bytes()));
            call.context.reply_bytes(&scratch.bytes);
            Ok(())
        })
    }
}

fn reply(call: &Call<'_>, values: &[i64]) {
    call.context.reply_array(values.len());
    values.iter().for_each(|value| call.context.reply_integer(*value));
}

/// Reads all live fields of the ids of `scratch`.
fn read_all(call: &Call<'_>, shared: &Arc<Shared>, scratch: &mut Scratch) -> Result<(), Stop> {
    let mut held = shared.lock().ok_or(Stop::Broken)?;
    let set: &mut CounterSet = held.set();
    check_values(scratch.ids.len(), set.schema())?;
    call.check_read(shared, set, &scratch.ids)?;
    Ok(set.read_many(&scratch.ids, call.fetched, &mut scratch.values)?)
}
