//! Runs scripts over a keyspace, each compiled once.

use super::meter::{Meter, Metered};
use super::packing;
use super::replies::{from_lua, read_arguments, to_lua};
use crate::commands::{Arguments, execute, is_write};
use crate::keyspace::{Fault, Keyspace};
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Value as LuaValue};
use redis::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// By how much the memory of Lua grows between two collections.
const GC_PAUSE_PERCENT: i32 = 400;

/// The first line of a script that must not write.
const NO_WRITES: &str = "#!lua flags=no-writes";

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A compiled script.
struct Compiled {
    function: Function,
    may_write: bool,
}

/// The text of a script, and its hash.
type Source = (Vec<u8>, String);

/// What is compiled in place of the text of a script.
pub(crate) type Alteration = Box<dyn Fn(&str) -> String + Send + Sync>;

/// One Lua state with its scripts. Scripts stay compiled when the data under it is replaced.
pub(crate) struct Engine {
    lua: Lua,
    keyspace: Arc<Mutex<Keyspace>>,
    scripts: Mutex<HashMap<String, Compiled>>,
    /// The sources of these by their length, each with its hash: to compare a source costs less than to hash it.
    sources: Mutex<HashMap<usize, Vec<Source>>>,
    /// Whether the script that runs may write.
    may_write: Arc<AtomicBool>,
    /// `None`: nothing is counted.
    meter: Arc<Mutex<Option<Meter>>>,
    alteration: Option<Alteration>,
}

impl Engine {
    pub(crate) fn new(keyspace: Arc<Mutex<Keyspace>>, alteration: Option<Alteration>) -> mlua::Result<Engine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        // Few collections: what a script leaves is little, what is compiled is much.
        lua.gc_inc(GC_PAUSE_PERCENT, 0, 0);
        let may_write = Arc::new(AtomicBool::new(true));
        let meter = Arc::new(Mutex::new(None::<Meter>));
        let redis = lua.create_table()?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let (keyspace, may_write, meter) = (keyspace.clone(), may_write.clone(), meter.clone());
            let arguments = Mutex::new(Arguments::default());
            let call = move |lua: &Lua, values: MultiValue| {
                let mut arguments = locked(&arguments);
                let reply = read_arguments(&mut arguments, &values).and_then(|()| {
                    if !may_write.load(Ordering::Relaxed) && is_write(arguments.get(0)) {
                        return Err(Fault::new("ERR Write commands are not allowed from read-only scripts."));
                    }
                    let mut keys = locked(&keyspace);
                    let mut meter = locked(&meter);
                    if let Some(meter) = &mut *meter {
                        meter.command(&mut keys, &arguments);
                    }
                    let reply = execute(&mut keys, &arguments)?;
                    if let Some(meter) = &mut *meter {
                        meter.reply(&arguments, &reply);
                    }
                    Ok(reply)
                });
                match reply {
                    Ok(value) => to_lua(lua, &value),
                    Err(fault) if raises => Err(mlua::Error::RuntimeError(fault.text().to_owned())),
                    Err(fault) => Ok(LuaValue::Table(error_table(lua, fault.text())?)),
                }
            };
            redis.raw_set(name, lua.create_function(call)?)?;
        }
        redis.raw_set(
            "error_reply",
            lua.create_function(|lua, text: mlua::String| error_table(lua, &text.to_string_lossy()))?,
        )?;
        redis.raw_set("status_reply", lua.create_function(status_table)?)?;
        redis.raw_set("sha1hex", lua.create_function(|_, text: mlua::String| Ok(sha1(&text.as_bytes())))?)?;
        let packing = lua.create_table()?;
        packing.raw_set("pack", lua.create_function(packing::pack)?)?;
        packing.raw_set("unpack", lua.create_function(packing::unpack)?)?;
        packing.raw_set("size", lua.create_function(packing::size)?)?;
        lua.globals().raw_set("redis", redis)?;
        lua.globals().raw_set("struct", packing)?;
        let (scripts, sources) = (Mutex::default(), Mutex::default());
        Ok(Engine { lua, keyspace, scripts, sources, may_write, meter, alteration })
    }

    pub(crate) fn keyspace(&self) -> MutexGuard<'_, Keyspace> {
        locked(&self.keyspace)
    }

    /// From now on script calls are counted.
    pub(crate) fn start_meter(&self) {
        *locked(&self.meter) = Some(Meter::default());
    }

    /// Ends the count.
    pub(crate) fn take_meter(&self) -> Vec<Metered> {
        locked(&self.meter).take().map(Meter::into_calls).unwrap_or_default()
    }

    /// Compiles a script unless that was done before. Returns its hash.
    pub(crate) fn load(&self, source: &[u8]) -> Result<String, Fault> {
        let mut sources = locked(&self.sources);
        let known = sources.entry(source.len()).or_default();
        if let Some((_, sha1)) = known.iter().find(|(text, _)| text == source) {
            return Ok(sha1.clone());
        }
        let text = String::from_utf8_lossy(source);
        let text = self.alteration.as_ref().map_or(text.clone(), |alter| alter(&text).into());
        let (head, body) = match text.starts_with("#!") {
            // The line stays, empty: errors name lines.
            true => text.split_at(text.find('\n').unwrap_or(text.len())),
            false => ("", &*text),
        };
        let compiled = self.lua.load(body).set_name("@user_script").into_function();
        let function = compiled
            .map_err(|error| Fault::new(format!("ERR Error compiling script (new function): {}", cause(&error))))?;
        let sha1 = sha1(source);
        let compiled = Compiled { function, may_write: !head.starts_with(NO_WRITES) };
        locked(&self.scripts).insert(sha1.clone(), compiled);
        known.push((source.to_vec(), sha1.clone()));
        Ok(sha1)
    }

    /// Runs a script that is loaded: EVALSHA, its hash being argument 1 and the number of keys argument 2.
    pub(crate) fn run(&self, arguments: &Arguments) -> Result<Value, Fault> {
        let sha1 = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
        let (function, may_write) = {
            let scripts = locked(&self.scripts);
            let found = scripts.get(&sha1);
            let compiled = found.ok_or(Fault::from_static("NOSCRIPT No matching script. Please use EVAL."))?;
            (compiled.function.clone(), compiled.may_write)
        };
        let keys = arguments.integer(2)?;
        let keys = usize::try_from(keys).map_err(|_| Fault::new("ERR Number of keys can't be negative"))?;
        if keys + 3 > arguments.len() {
            return Err(Fault::new("ERR Number of keys can't be greater than number of args"));
        }
        self.may_write.store(may_write, Ordering::Relaxed);
        if let Some(meter) = &mut *locked(&self.meter) {
            meter.begin(&sha1, arguments);
        }
        let result = self.call(&function, arguments, 3 + keys);
        if let Some(meter) = &mut *locked(&self.meter) {
            meter.end(result.as_ref().ok().and_then(|reply| reply.as_ref().ok()));
        }
        match result {
            Ok(reply) => reply,
            Err(error) => Err(script_fault(&error, &sha1)),
        }
    }

    fn call(&self, function: &Function, arguments: &Arguments, first: usize) -> mlua::Result<Result<Value, Fault>> {
        let table = |from: usize, to: usize| {
            let table = self.lua.create_table_with_capacity(to - from, 0)?;
            for at in from..to {
                table.raw_set(at - from + 1, self.lua.create_string(arguments.get(at))?)?;
            }
            mlua::Result::Ok(table)
        };
        let globals = self.lua.globals();
        globals.raw_set("KEYS", table(3, first)?)?;
        globals.raw_set("ARGV", table(first, arguments.len())?)?;
        from_lua(function.call(())?)
    }
}

pub(crate) fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

fn error_table(lua: &Lua, text: &str) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

fn status_table(lua: &Lua, text: mlua::String) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    table.raw_set("ok", text)?;
    Ok(table)
}

/// The text of the error that began it.
fn cause(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause: inner, .. } => cause(inner),
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A script's error as Redis answers it: the code of the command that failed, or ERR.
fn script_fault(error: &mlua::Error, sha1: &str) -> Fault {
    let text = cause(error);
    let text = text.split("\nstack traceback").next().unwrap_or_default();
    let code = text.split(' ').next().unwrap_or_default();
    let has_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
    let prefix = if has_code { "" } else { "ERR " };
    Fault::new(format!("{prefix}{text} script: {sha1}, on @user_script."))
}
