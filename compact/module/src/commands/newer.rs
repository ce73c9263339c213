//! `CT.PSETNEWER`: values with the time from which they are exact. A later writer overwrites, an earlier one changes nothing (W6).

use super::parse::{check_records, chunks, field};
use super::{Call, Command, Stop};
use crate::scratch;
use tallystone_compact::{CounterSet, Mode, Refusal};

/// `CT.PSETNEWER key field time_field packed`
pub(super) struct PSetNewer;

/// Bytes of an item: id, value, time.
const PACKED_BYTES: usize = 24;

struct Item {
    id: u64,
    value: i64,
    time: i64,
}

fn item(packed: &[u8; PACKED_BYTES]) -> Result<Item, Stop> {
    let ([id, value, time], _) = packed.as_chunks::<8>() else { return Err(Stop::Arity) };
    let time = i64::try_from(u64::from_le_bytes(*time)).map_err(|_| Stop::text("ERR a time is below 2^63"))?;
    Ok(Item { id: u64::from_le_bytes(*id), value: i64::from_le_bytes(*value), time })
}

impl Command for PSetNewer {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != PSetNewer::ARGS_MIN {
            return Err(Stop::Arity);
        }
        let items = chunks::<PACKED_BYTES>(call, call.args.get(4))?;
        scratch::with(|scratch| {
            let key = call.open_write();
            let shared = key.set()?;
            let mut held = shared.lock().ok_or(Stop::Broken)?;
            let set = held.set();
            check_records(items.len(), set.schema())?;
            let fields = fields(call, set, items)?;
            scratch.ids.extend(items.iter().filter_map(|packed| item(packed).ok()).map(|item| item.id));
            call.check_read(shared, set, &scratch.ids)?;
            set.warm(&scratch.ids, call.fetched);
            let (mut count, mut refused) = (0, None);
            for packed in items {
                match store(call, set, fields, &item(packed)?) {
                    Ok(true) => {
                        count += 1;
                        scratch.bytes.extend_from_slice(packed);
                    }
                    Ok(false) => {}
                    Err(refusal) => refused = Some(refusal),
                }
            }
            drop(held);
            match refused {
                // The others are set. The command can be repeated: what is set is not newer than itself.
                Some(refusal) => call.context.reply_error(&refusal.to_string()),
                None => call.context.reply_integer(count as i64),
            }
            if count == items.len() {
                call.context.replicate_verbatim();
            } else if count > 0 {
                // A replica sets what it is sent, so it gets only what was set here.
                call.context.replicate_packed(c"CT.PSETNEWER", &call.args.raw_from(1)[..3], &scratch.bytes);
            }
            if count > 0 {
                call.changed(key, c"ct.psetnewer");
            }
            Ok(())
        })
    }
}

/// The numbers of both fields, which the values and times of all items suit.
fn fields(call: &Call<'_>, set: &CounterSet, items: &[[u8; PACKED_BYTES]]) -> Result<(u8, u8), Stop> {
    let schema = set.schema();
    let (value, time) = (field(schema, call.args.get(2))?, field(schema, call.args.get(3))?);
    if value == time {
        return Err(Stop::text("ERR the field and its time field differ"));
    }
    let is_unsigned = schema.field(value).is_some_and(|field| !field.signed);
    for packed in items {
        if item(packed)?.value < 0 && is_unsigned {
            return Err(Stop::text("OVERFLOW a value of an unsigned field is below 0"));
        }
    }
    Ok((value, time))
}

fn store(call: &Call<'_>, set: &mut CounterSet, (value, time): (u8, u8), item: &Item) -> Result<bool, Refusal> {
    if call.mode() == Mode::Apply {
        let values = [(value, item.value), (time, item.time)];
        return set.set(Mode::Apply, item.id, &values, call.fetched).map(|()| true);
    }
    set.set_newer(Mode::Decide, item.id, (value, item.value), (time, item.time), call.fetched)
}
