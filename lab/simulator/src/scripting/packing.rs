//! Redis's Lua library `struct`: numbers and strings packed into one string, by a format. The source is lua_struct.c of
//! Redis 7.

use mlua::{Error, Lua, MultiValue, Result, Value};

/// The longest integer that a format may have, in bytes.
const INTEGER_BYTES_MAX: usize = 32;

/// One element of a format.
enum Item {
    /// A number of bytes, signed or not.
    Integer(usize, bool),
    /// This number of bytes of a string; 0: all of it, or the number of bytes that the previous number says.
    Bytes(usize),
    /// A string that ends with a zero byte.
    Terminated,
    /// One byte that stands for nothing.
    Padding,
}

/// Reads a format from front to back.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8]) -> Format<'a> {
        Format { rest: format, is_big: cfg!(target_endian = "big") }
    }

    fn number(&mut self, otherwise: usize) -> usize {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return otherwise;
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.iter().fold(0_usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
    }

    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
            self.rest = rest;
            return Ok(Some(match option {
                b'B' | b'b' => Item::Integer(1, option == b'b'),
                b'H' | b'h' => Item::Integer(2, option == b'h'),
                b'L' | b'l' => Item::Integer(8, option == b'l'),
                b'T' => Item::Integer(8, false),
                b'I' | b'i' => {
                    let bytes = self.number(4);
                    if bytes > INTEGER_BYTES_MAX {
                        return Err(fault(format!(
                            "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
                        )));
                    }
                    Item::Integer(bytes, option == b'i')
                }
                b'c' => Item::Bytes(self.number(1)),
                b's' => Item::Terminated,
                b'x' => Item::Padding,
                b'>' => {
                    self.is_big = true;
                    continue;
                }
                b'<' => {
                    self.is_big = false;
                    continue;
                }
                b' ' => continue,
                other => return Err(fault(format!("invalid format option '{}'", char::from(other)))),
            }));
        }
    }
}

fn fault(text: impl Into<String>) -> Error {
    Error::RuntimeError(text.into())
}

fn bad_argument(at: usize, of: &str, why: &str) -> Error {
    fault(format!("bad argument #{at} to '{of}' ({why})"))
}

/// The number that an argument is or spells.
fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        Value::String(text) => std::str::from_utf8(&text.as_bytes()).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// Calls with the bytes that an argument is or spells.
fn with_bytes<T>(lua: &Lua, value: Option<&Value>, then: impl FnOnce(&[u8]) -> Result<T>) -> Option<Result<T>> {
    match value? {
        Value::String(text) => Some(then(&text.as_bytes())),
        number @ (Value::Integer(_) | Value::Number(_)) => match lua.coerce_string(number.clone()) {
            Ok(text) => text.map(|text| then(&text.as_bytes())),
            Err(error) => Some(Err(error)),
        },
        _ => None,
    }
}

fn put_integer(out: &mut Vec<u8>, number: f64, bytes: usize, is_big: bool) {
    // As C converts: a negative number over a signed one.
    let value = if number < 0.0 { number as i64 as u64 } else { number as u64 };
    let byte = |at: usize| if at < 8 { (value >> (8 * at)) as u8 } else { 0 };
    match is_big {
        true => out.extend((0..bytes).rev().map(byte)),
        false => out.extend((0..bytes).map(byte)),
    }
}

fn get_integer(data: &[u8], is_signed: bool, is_big: bool) -> f64 {
    let add = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
    let value = if is_big { data.iter().fold(0, add) } else { data.iter().rev().fold(0, add) };
    if !is_signed {
        return value as f64;
    }
    let shift = (data.len() * 8).saturating_sub(1).min(63);
    let mask = u64::MAX << shift;
    (if value & mask == 0 { value } else { value | mask }) as i64 as f64
}

/// `struct.pack`.
pub(super) fn pack(lua: &Lua, arguments: MultiValue) -> Result<mlua::String> {
    let text = format_of(&arguments, "pack")?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut out = Vec::with_capacity(64);
    let mut at = 1;
    while let Some(item) = format.next()? {
        match item {
            Item::Integer(bytes, _) => {
                let value = number(arguments.get(at));
                let value = value.ok_or_else(|| bad_argument(at + 1, "pack", "number expected"))?;
                put_integer(&mut out, value, bytes, format.is_big);
                at += 1;
            }
            Item::Bytes(_) | Item::Terminated => {
                let length = if let Item::Bytes(length) = item { length } else { 0 };
                let added = with_bytes(lua, arguments.get(at), |bytes| {
                    let length = if length == 0 { bytes.len() } else { length };
                    let bytes = bytes.get(..length).ok_or_else(|| bad_argument(at + 2, "pack", "string too short"))?;
                    out.extend_from_slice(bytes);
                    Ok(())
                });
                added.ok_or_else(|| bad_argument(at + 1, "pack", "string expected"))??;
                if matches!(item, Item::Terminated) {
                    out.push(0);
                }
                at += 1;
            }
            Item::Padding => out.push(0),
        }
    }
    lua.create_string(&out)
}

/// `struct.unpack`: the values, then the position behind them.
pub(super) fn unpack(lua: &Lua, arguments: MultiValue) -> Result<MultiValue> {
    let text = format_of(&arguments, "unpack")?;
    let text = text.as_bytes();
    let position = match arguments.get(2) {
        None | Some(Value::Nil) => 1.0,
        given => number(given).ok_or_else(|| bad_argument(3, "unpack", "number expected"))?,
    };
    if position < 1.0 {
        return Err(bad_argument(3, "unpack", "offset must be 1 or greater"));
    }
    let values = with_bytes(lua, arguments.get(1), |data| unpack_from(lua, &text, data, position as usize - 1));
    values.ok_or_else(|| bad_argument(2, "unpack", "string expected"))?
}

fn unpack_from(lua: &Lua, format: &[u8], data: &[u8], mut at: usize) -> Result<MultiValue> {
    let mut format = Format::new(format);
    let mut values: Vec<Value> = Vec::with_capacity(20);
    let part = |at: usize, bytes: usize| {
        let end = at.checked_add(bytes).filter(|end| *end <= data.len());
        end.map(|end| &data[at..end]).ok_or_else(|| bad_argument(2, "unpack", "data string too short"))
    };
    while let Some(item) = format.next()? {
        match item {
            Item::Integer(bytes, is_signed) => {
                values.push(Value::Number(get_integer(part(at, bytes)?, is_signed, format.is_big)));
                at += bytes;
            }
            Item::Bytes(mut bytes) => {
                part(at, bytes)?;
                if bytes == 0 {
                    let size = number(values.last()).ok_or_else(|| fault("format 'c0' needs a previous size"))?;
                    values.pop();
                    bytes = size as usize;
                }
                values.push(Value::String(lua.create_string(part(at, bytes)?)?));
                at += bytes;
            }
            Item::Terminated => {
                let rest = part(at, 0).map(|_| &data[at..])?;
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| fault("unfinished string in data"))?;
                values.push(Value::String(lua.create_string(&rest[..end])?));
                at += end + 1;
            }
            Item::Padding => {
                part(at, 1)?;
                at += 1;
            }
        }
    }
    values.push(Value::Integer(at as i64 + 1));
    Ok(MultiValue::from_vec(values))
}

/// `struct.size`.
pub(super) fn size(_: &Lua, arguments: MultiValue) -> Result<usize> {
    let text = format_of(&arguments, "size")?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut bytes = 0;
    while let Some(item) = format.next()? {
        bytes += match item {
            Item::Integer(bytes, _) => bytes,
            Item::Bytes(0) => return Err(bad_argument(1, "size", "variable-length format")),
            Item::Terminated => return Err(bad_argument(1, "size", "variable-size format")),
            Item::Bytes(bytes) => bytes,
            Item::Padding => 1,
        };
    }
    Ok(bytes)
}

fn format_of(arguments: &MultiValue, of: &str) -> Result<mlua::String> {
    match arguments.front() {
        Some(Value::String(format)) => Ok(format.clone()),
        _ => Err(bad_argument(1, of, "string expected")),
    }
}
