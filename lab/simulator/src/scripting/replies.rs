//! Values between Lua and Redis: arguments of commands, replies of commands, replies of scripts.

use crate::commands::{Arguments, float_text};
use crate::keyspace::Fault;
use mlua::{Lua, MultiValue, Table, Value as LuaValue};
use redis::Value;

/// Replaces the arguments by those of a `redis.call`.
pub(super) fn read_arguments(arguments: &mut Arguments, values: &MultiValue) -> Result<(), Fault> {
    arguments.clear();
    if values.is_empty() {
        return Err(Fault::new("ERR Please specify at least one argument for this redis.call() call"));
    }
    for value in values {
        match value {
            LuaValue::String(text) => arguments.push(&text.as_bytes()),
            LuaValue::Integer(number) => arguments.push(float_text(*number as f64).as_bytes()),
            LuaValue::Number(number) => arguments.push(float_text(*number).as_bytes()),
            _ => return Err(Fault::new("ERR Lua redis lib command arguments must be strings or integers")),
        }
    }
    Ok(())
}

/// A command's reply as a script sees it: nil is false, a status is a table.
pub(super) fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    Ok(match value {
        Value::Nil => LuaValue::Boolean(false),
        Value::Int(number) => LuaValue::Number(*number as f64),
        Value::BulkString(bytes) => LuaValue::String(lua.create_string(bytes)?),
        Value::Okay => LuaValue::Table(status(lua, "OK")?),
        Value::SimpleString(text) => LuaValue::Table(status(lua, text)?),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (at, item) in items.iter().enumerate() {
                table.raw_set(at + 1, to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        other => return Err(mlua::Error::RuntimeError(format!("no command replies {other:?}"))),
    })
}

fn status(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("ok", text)?;
    Ok(table)
}

/// What a script returns as a reply: numbers lose their fractions, a list ends at its first nil.
pub(super) fn from_lua(value: LuaValue) -> mlua::Result<Result<Value, Fault>> {
    Ok(Ok(match value {
        LuaValue::Integer(number) => Value::Int(number),
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => {
            if let LuaValue::String(error) = table.raw_get("err")? {
                return Ok(Err(Fault::new(error.to_string_lossy())));
            }
            if let LuaValue::String(status) = table.raw_get("ok")? {
                return Ok(Ok(Value::SimpleString(status.to_string_lossy())));
            }
            let mut items = Vec::new();
            for at in 1.. {
                match table.raw_get(at)? {
                    LuaValue::Nil => break,
                    item => items.push(match from_lua(item)? {
                        Ok(item) => item,
                        fault => return Ok(fault),
                    }),
                }
            }
            Value::Array(items)
        }
        _ => Value::Nil,
    }))
}
