//! `CT.ALTER`.

use super::parse::new_field;
use super::{Call, Command, Stop};
use tallystone_compact::{Change, Field};

/// `CT.ALTER key ADD field width | WIDEN field width | RETIRE field | OPTION name value`
pub(super) struct Alter;

impl Command for Alter {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 4;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let args = call.args;
        let change = match (args.get(2).to_ascii_uppercase().as_slice(), args.len()) {
            (b"ADD", 5) => Change::Add(new_field(args.get(3), args.get(4))?),
            (b"WIDEN", 5) => Change::Widen(Field::parse(args.get(3), args.get(4))?),
            (b"RETIRE", 4) => Change::Retire(args.get(3).to_vec()),
            (b"OPTION", 5) => Change::Option(args.get(3).to_vec(), args.get(4).to_vec()),
            (b"ADD" | b"WIDEN" | b"RETIRE" | b"OPTION", _) => return Err(Stop::Arity),
            _ => return Err(Stop::text("ERR the changes are ADD, WIDEN, RETIRE and OPTION")),
        };
        let key = call.open_write();
        let shared = key.set()?;
        shared.lock().ok_or(Stop::Broken)?.set().alter(change)?;
        call.context.reply_ok();
        call.context.replicate_verbatim();
        call.changed(key, c"ct.alter");
        Ok(())
    }
}
