//! `CT.RESTORE` and `CT.REPAIR`: records from elsewhere.

use super::parse::{check_ids, check_values, id};
use super::{Call, Command, Stop};
use crate::context::{Level, log};
use crate::raw;
use crate::value::{Held, Value};
use std::ffi::c_int;
use tallystone_compact::{CounterSet, Mode};

/// `CT.RESTORE key piece`
pub(super) struct Restore;

/// `CT.REPAIR key first last packed`
pub(super) struct Repair;

/// Bytes of a piece at most; those of a dump have half as many.
const PIECE_BYTES_MAX: usize = 256 << 10;

impl Command for Restore {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != Restore::ARGS_MIN {
            return Err(Stop::Arity);
        }
        let piece = call.args.get(2);
        if piece.len() > PIECE_BYTES_MAX {
            return Err(Stop::text("ERR a piece has at most 262144 bytes"));
        }
        restore(call, piece).inspect_err(|stop| end_if_accepted(call, stop))
    }
}

/// The engine ignores errors of commands in its log, and of those that its primary sends, so a set would lack the counters of this piece
/// without a word. A log that cannot be trusted ends the engine, as one that it cannot read itself does; and so does a piece that the
/// primary has taken, on a replica that has to equal it.
fn end_if_accepted(call: &Call<'_>, stop: &Stop) {
    const OF_PRIMARY: c_int = raw::FLAG_REPLICA | raw::FLAG_READONLY | raw::FLAG_REPLICATED;
    let flags = call.context.flags();
    let why = if flags & raw::FLAG_LOADING != 0 {
        "the append-only file is damaged"
    } else if flags & OF_PRIMARY == OF_PRIMARY {
        "this replica ends, so that it does not differ from its primary"
    } else {
        return;
    };
    log(Level::Warning, &format!("{why}: a piece of a counter set is refused ({stop:?})"));
    std::process::exit(1);
}

fn restore(call: &Call<'_>, piece: &[u8]) -> Result<(), Stop> {
    let key = call.open_write();
    if key.is_empty() {
        let mut held = Held::empty();
        held.restore(call.mode(), piece)?;
        key.put(Value::from_held(held))?;
    } else {
        let (taken, has_failed) = key.set_in_any_state()?.restore(call.mode(), piece).ok_or(Stop::Broken)?;
        if has_failed && call.mode() == Mode::Decide {
            // Otherwise the log and the replicas would take the next piece as if this one had never come.
            let failed = CounterSet::failed_piece();
            call.context.replicate_packed(c"CT.RESTORE", &call.args.raw_from(1)[..1], &failed);
        }
        taken?;
    }
    call.context.reply_ok();
    call.context.replicate_verbatim();
    call.changed(key, c"ct.restore");
    Ok(())
}

impl Command for Repair {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != Repair::ARGS_MIN {
            return Err(Stop::Arity);
        }
        let (first, last) = (id(call.args.get(2))?, id(call.args.get(3))?);
        let packed = call.args.get(4);
        let key = call.open_write();
        let shared = key.set()?;
        let mut held = shared.lock().ok_or(Stop::Broken)?;
        let set = held.set();
        let record_bytes = 8 + 8 * set.schema().live().count();
        if !packed.len().is_multiple_of(record_bytes) {
            return Err(Stop::invalid(&format!("a record has {record_bytes} bytes: the id, then each live field")));
        }
        check_ids(call, packed.len() / record_bytes)?;
        check_values(packed.len() / record_bytes, set.schema())?;
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        for record in packed.chunks(record_bytes) {
            let (words, _) = record.as_chunks::<8>();
            ids.push(u64::from_le_bytes(words[0]));
            values.extend(words[1..].iter().map(|word| i64::from_le_bytes(*word)));
        }
        let repaired = set.repair(call.mode(), first, last, &ids, &values)?;
        drop(held);
        call.context.reply_integer(repaired as i64);
        call.context.replicate_verbatim();
        call.changed(key, c"ct.repair");
        Ok(())
    }
}
