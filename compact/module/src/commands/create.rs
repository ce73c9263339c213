//! `CT.CREATE`.

use super::parse::new_field;
use super::{Call, Command, Stop};
use crate::context::random;
use crate::value::Value;
use tallystone_compact::{CounterSet, Options, Schema};

/// `CT.CREATE key [option value …] SCHEMA field width [field width …]`
pub(super) struct Create;

impl Command for Create {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 5;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let args = call.args;
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() && !args.get(at).eq_ignore_ascii_case(b"SCHEMA") {
            if at + 1 == args.len() {
                return Err(Stop::Arity);
            }
            options.set(args.get(at), args.get(at + 1), true)?;
            at += 2;
        }
        let widths = args.len().saturating_sub(at + 1);
        if widths == 0 || !widths.is_multiple_of(2) {
            return Err(Stop::text("ERR SCHEMA and pairs of a field and its width end the command"));
        }
        let fields = (at + 1..args.len()).step_by(2).map(|place| new_field(args.get(place), args.get(place + 1)));
        let schema = Schema::new(fields.collect::<Result<_, Stop>>()?)?;
        let key = call.open_write();
        if !key.is_empty() {
            return Err(Stop::Busy);
        }
        key.put(Value::new(CounterSet::new(schema, options, random())?))?;
        call.context.reply_ok();
        call.context.replicate_verbatim();
        call.changed(key, c"ct.create");
        Ok(())
    }
}
