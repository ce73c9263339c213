//! The table of commands: flags, categories, and what `COMMAND DOCS` says of them.

use super::{Command, entry};
use super::{alter, create, increment, inspect, newer, packed, read, restore, write};
use crate::context::Context;
use crate::raw::{self, api};
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

/// The version of the module in which a command appeared.
const SINCE: &CStr = c"0.1.0";
/// The category of all commands, where the engine takes new ones.
const CATEGORY: &CStr = c"compact";

/// How `COMMAND DOCS` describes an argument.
struct Arg {
    name: &'static CStr,
    kind: c_int,
    token: Option<&'static CStr>,
    flags: c_int,
    parts: &'static [Arg],
}

const fn arg(name: &'static CStr, kind: c_int) -> Arg {
    Arg { name, kind, token: None, flags: 0, parts: &[] }
}

impl Arg {
    const fn optional(self) -> Arg {
        Arg { flags: self.flags | raw::ARG_OPTIONAL, ..self }
    }

    const fn multiple(self) -> Arg {
        Arg { flags: self.flags | raw::ARG_MULTIPLE, ..self }
    }

    const fn after(self, token: &'static CStr) -> Arg {
        Arg { token: Some(token), ..self }
    }

    const fn of(self, parts: &'static [Arg]) -> Arg {
        Arg { parts, ..self }
    }
}

const KEY: Arg = arg(c"key", raw::ARG_KEY);
const ID: Arg = arg(c"id", raw::ARG_INTEGER);
const FIELD: Arg = arg(c"field", raw::ARG_STRING);
const PACKED: Arg = arg(c"packed", raw::ARG_STRING);
const WIDTH: Arg = arg(c"width", raw::ARG_STRING);
const NAME: Arg = arg(c"name", raw::ARG_STRING);
const VALUE: Arg = arg(c"value", raw::ARG_STRING);
const TOKEN: Arg = arg(c"token", raw::ARG_BLOCK)
    .optional()
    .of(&[arg(c"token", raw::ARG_STRING).after(c"TOKEN"), arg(c"ms", raw::ARG_UNIX_TIME).after(c"TIME")]);
const DELTAS: Arg = arg(c"increment", raw::ARG_BLOCK).multiple().of(&[FIELD, arg(c"delta", raw::ARG_INTEGER)]);
const ID_DELTAS: Arg = arg(c"increment", raw::ARG_BLOCK).multiple().of(&[ID, FIELD, arg(c"delta", raw::ARG_INTEGER)]);
const VALUES: Arg = arg(c"assignment", raw::ARG_BLOCK).multiple().of(&[FIELD, arg(c"value", raw::ARG_INTEGER)]);
const OPTIONS: Arg = arg(c"option", raw::ARG_BLOCK).optional().multiple().of(&[NAME, VALUE]);
const SCHEMA: Arg = arg(c"schema", raw::ARG_BLOCK).multiple().after(c"SCHEMA").of(&[FIELD, WIDTH]);
const CHANGE: Arg = arg(c"change", raw::ARG_ONE_OF).of(&[
    arg(c"add", raw::ARG_BLOCK).after(c"ADD").of(&[FIELD, WIDTH]),
    arg(c"widen", raw::ARG_BLOCK).after(c"WIDEN").of(&[FIELD, WIDTH]),
    FIELD.after(c"RETIRE"),
    arg(c"option", raw::ARG_BLOCK).after(c"OPTION").of(&[NAME, VALUE]),
]);
const CURSOR: Arg = arg(c"cursor", raw::ARG_INTEGER);

/// A command as it is registered.
struct Row {
    name: &'static CStr,
    function: raw::CommandFunc,
    is_write: bool,
    flags: &'static CStr,
    arity: c_int,
    key: u64,
    summary: &'static CStr,
    complexity: &'static CStr,
    args: &'static [Arg],
    /// What `COMMAND INFO` says to clients and proxies, separated by spaces.
    tips: Option<&'static CStr>,
    is_dangerous: bool,
}

/// The tip of commands that may reply differently to the same arguments on two nodes with the same records, or a second time.
const VARIES: &CStr = c"nondeterministic_output";

const WRITE: &CStr = c"write deny-oom";
const WRITE_FAST: &CStr = c"write deny-oom fast";
const READ: &CStr = c"readonly";
const READ_FAST: &CStr = c"readonly fast";

const UPDATE: u64 = raw::KEY_READ_WRITE | raw::KEY_UPDATE;
const UPDATE_AND_READ: u64 = UPDATE | raw::KEY_ACCESS;
const ACCESS: u64 = raw::KEY_READ_ONLY | raw::KEY_ACCESS;
const INSERT: u64 = raw::KEY_READ_WRITE | raw::KEY_INSERT;

const fn row<C: Command>(
    name: &'static CStr,
    flags: &'static CStr,
    key: u64,
    (summary, complexity): (&'static CStr, &'static CStr),
    args: &'static [Arg],
) -> Row {
    Row {
        name,
        function: entry::<C>,
        is_write: C::IS_WRITE,
        flags,
        arity: -(C::ARGS_MIN as c_int),
        key,
        summary,
        complexity,
        args,
        tips: None,
        is_dangerous: false,
    }
}

impl Row {
    /// For a command whose number of arguments is fixed.
    const fn exact(self) -> Row {
        Row { arity: -self.arity, ..self }
    }

    const fn with_tips(self, tips: &'static CStr) -> Row {
        Row { tips: Some(tips), ..self }
    }

    /// For a command that only operators send.
    const fn dangerous(self) -> Row {
        Row { is_dangerous: true, ..self }
    }
}

const ONE: &CStr = c"O(1)";
const PER_FIELD: &CStr = c"O(N) where N is the number of fields";
const PER_ID: &CStr = c"O(N) where N is the number of ids";

const TABLE: [Row; 18] = [
    row::<create::Create>(
        c"ct.create",
        WRITE,
        INSERT,
        (c"Creates a counter set with the fields of each id.", ONE),
        &[KEY, OPTIONS, SCHEMA],
    ),
    row::<alter::Alter>(
        c"ct.alter",
        WRITE,
        UPDATE,
        (c"Adds, widens or retires a field, or sets an option.", ONE),
        &[KEY, CHANGE],
    ),
    row::<increment::IncrBy>(
        c"ct.incrby",
        WRITE_FAST,
        UPDATE_AND_READ,
        (c"Adds to fields of an id, all or none, and returns their new values.", PER_FIELD),
        &[KEY, ID, DELTAS, TOKEN],
    ),
    row::<packed::MIncrBy>(
        c"ct.mincrby",
        WRITE,
        UPDATE_AND_READ,
        (c"Adds to a field of each of many ids, and returns the new values.", PER_ID),
        &[KEY, ID_DELTAS, TOKEN],
    ),
    row::<packed::PIncrBy>(
        c"ct.pincrby",
        WRITE,
        UPDATE,
        (c"Adds to a field of each of many ids; each increment is packed in 13 bytes.", PER_ID),
        &[KEY, PACKED, TOKEN],
    ),
    row::<write::Set>(c"ct.set", WRITE_FAST, UPDATE, (c"Sets fields of an id.", PER_FIELD), &[KEY, ID, VALUES]),
    row::<write::Del>(
        c"ct.del",
        WRITE,
        UPDATE_AND_READ,
        (c"Sets all fields of each id to 0.", PER_ID),
        &[KEY, ID.multiple()],
    ),
    row::<newer::PSetNewer>(
        c"ct.psetnewer",
        WRITE,
        UPDATE,
        (
            c"Sets a field and its time field of each id whose time is greater than the stored one; each id is packed in 24 bytes.",
            PER_ID,
        ),
        &[KEY, FIELD, arg(c"time_field", raw::ARG_STRING), PACKED],
    )
    .exact(),
    row::<read::Get>(
        c"ct.get",
        READ_FAST,
        ACCESS,
        (c"Returns fields of an id; all of them if none is named.", PER_FIELD),
        &[KEY, ID, FIELD.optional().multiple()],
    ),
    row::<read::MGet>(c"ct.mget", READ, ACCESS, (c"Returns all fields of many ids.", PER_ID), &[KEY, ID.multiple()]),
    row::<read::PGet>(
        c"ct.pget",
        READ,
        ACCESS,
        (c"Returns all fields of many ids; each id and each value is packed in 8 bytes.", PER_ID),
        &[KEY, PACKED],
    )
    .exact(),
    row::<inspect::Info>(
        c"ct.info",
        READ,
        ACCESS,
        (c"Returns the schema, sizes and options of a counter set.", c"O(N) where N is the number of tables"),
        &[KEY],
    )
    .exact()
    .with_tips(VARIES),
    row::<inspect::Tables>(
        c"ct.tables",
        READ,
        ACCESS,
        (
            c"Returns the ranges, sizes and states of the tables of a counter set.",
            c"O(N) where N is the number of tables returned, 256 at most",
        ),
        &[KEY, arg(c"serial", raw::ARG_INTEGER).after(c"FROM").optional()],
    )
    .with_tips(VARIES),
    row::<inspect::Check>(
        c"ct.check",
        READ,
        ACCESS,
        (c"Verifies a part of a counter set, from a cursor on.", ONE),
        &[KEY, CURSOR.optional()],
    )
    .with_tips(VARIES),
    row::<inspect::GiveUp>(
        c"ct.giveup",
        c"write",
        UPDATE,
        (c"Verifies as CT.CHECK does, and treats pages that cannot be read as damaged from then on.", ONE),
        &[KEY, CURSOR],
    )
    .exact()
    .with_tips(VARIES)
    .dangerous(),
    row::<inspect::Scan>(
        c"ct.scan",
        READ,
        ACCESS,
        (c"Iterates over ids with their fields.", c"O(1) for every call"),
        &[KEY, CURSOR, arg(c"count", raw::ARG_INTEGER).after(c"COUNT").optional()],
    )
    .with_tips(VARIES),
    row::<restore::Repair>(
        c"ct.repair",
        WRITE,
        UPDATE,
        (c"Replaces the damaged records of a range of ids.", PER_ID),
        &[KEY, arg(c"first", raw::ARG_INTEGER), arg(c"last", raw::ARG_INTEGER), PACKED],
    )
    .exact(),
    row::<restore::Restore>(
        c"ct.restore",
        WRITE,
        INSERT,
        (
            c"Takes the next piece of a dump; the first one creates the key.",
            c"O(N) where N is the number of records in the piece",
        ),
        &[KEY, arg(c"piece", raw::ARG_STRING)],
    )
    .exact()
    .dangerous(),
];

/// Registers all commands.
pub(crate) fn register(context: &Context<'_>) -> Result<(), String> {
    let has_category = api().add_acl_category.is_some_and(|add| {
        // SAFETY: the context is that of OnLoad, and the string is valid.
        unsafe { add(context.raw(), CATEGORY.as_ptr()) == raw::OK }
    });
    for row in &TABLE {
        register_row(context, row, has_category).map_err(|what| format!("{}: {what}", row.name.to_string_lossy()))?;
    }
    Ok(())
}

fn register_row(context: &Context<'_>, row: &Row, has_category: bool) -> Result<(), &'static str> {
    // SAFETY: the context is that of OnLoad; the engine copies strings, and the function is of its type.
    let command = unsafe {
        let (name, flags) = (row.name.as_ptr(), row.flags.as_ptr());
        if (api().create_command)(context.raw(), name, row.function, flags, 1, 1, 1) != raw::OK {
            return Err("the command exists");
        }
        (api().get_command)(context.raw(), name)
    };
    let mut kept = Vec::new();
    let mut key_specs = [raw::KeySpec::first_argument(row.key), raw::KeySpec::END];
    let info = raw::CommandInfo {
        version: &raw const raw::COMMAND_INFO_VERSION,
        summary: row.summary.as_ptr(),
        complexity: row.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: null_mut(),
        tips: row.tips.map_or(null(), CStr::as_ptr),
        arity: row.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: lower(row.args, &mut kept),
    };
    // SAFETY: the command was registered just now. The engine copies all of the structure, whose arrays `kept` and this function own.
    if unsafe { (api().set_command_info)(command, &info) } != raw::OK {
        return Err("the engine refuses its description");
    }
    if let Some(set) = api().set_command_acl_categories {
        let kind = if row.is_write { "write" } else { "read" };
        let speed = if row.flags.to_bytes().ends_with(b"fast") { "fast" } else { "slow" };
        let ours = if has_category { "compact " } else { "" };
        let danger = if row.is_dangerous { " dangerous" } else { "" };
        let categories = CString::new(format!("{ours}{kind} {speed}{danger}")).unwrap_or_default();
        // SAFETY: as above.
        if unsafe { set(command, categories.as_ptr()) } != raw::OK {
            return Err("the engine refuses its categories");
        }
    }
    Ok(())
}

/// Makes the engine's array of arguments. What it refers to is added to `kept`.
fn lower(args: &[Arg], kept: &mut Vec<Vec<raw::CommandArg>>) -> *mut raw::CommandArg {
    if args.is_empty() {
        return null_mut();
    }
    let mut lowered = Vec::new();
    for arg in args {
        lowered.push(raw::CommandArg {
            name: arg.name.as_ptr(),
            kind: arg.kind,
            key_spec_index: if arg.kind == raw::ARG_KEY { 0 } else { -1 },
            token: arg.token.map_or(null(), CStr::as_ptr),
            flags: arg.flags,
            subargs: lower(arg.parts, kept),
            ..raw::CommandArg::END
        });
    }
    lowered.push(raw::CommandArg::END);
    kept.push(lowered);
    kept.last_mut().map_or(null_mut(), Vec::as_mut_ptr)
}
