//! What is wrong with a value of the configuration, in words. The libraries that read it speak of their types.

use figment::error::{Actual, Kind};

/// The keys whose values may have a password.
const SECRET_KEYS: &[&str] = &["redis.url", "kafka.properties", "elasticsearch.url"];

/// Continues "`section.key` in FILE …". The value of a key that may have a password is not shown.
pub(super) fn wrong_value(key: &str, kind: &Kind) -> String {
    let is_secret = SECRET_KEYS.iter().any(|secret| key.starts_with(secret));
    match kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) if is_secret => {
            format!("must be {}", wanted(expected))
        }
        Kind::Message(_) if is_secret => "cannot be read".to_owned(),
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("is {}; it must be {}", value(found), wanted(expected))
        }
        Kind::InvalidLength(found, expected) => format!("has {found} items; it must be {}", wanted(expected)),
        Kind::UnknownVariant(found, expected) => format!("is {found:?}; it must be {}", choice(expected)),
        Kind::MissingField(name) => format!("has no `{name}`"),
        Kind::DuplicateField(name) => format!("has `{name}` twice"),
        Kind::Message(text) => match text.as_str() {
            "invalid socket address syntax" => "must be an IP address and a port, such as 127.0.0.1:7600".to_owned(),
            text => format!("cannot be read: {text}"),
        },
        other => format!("cannot be read: {other}"),
    }
}

fn value(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(number) => number.to_string(),
        Actual::Signed(number) => number.to_string(),
        Actual::Float(number) => number.to_string(),
        Actual::Char(text) => format!("the text {:?}", text.to_string()),
        Actual::Str(text) => format!("the text {text:?}"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// What Rust calls a type, as a person calls it.
fn wanted(expected: &str) -> String {
    let whole = |max: u64| format!("a whole number from 0 to {max}");
    match expected {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "socket address" => "an IP address and a port in quotes, such as '127.0.0.1:7600'".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        expected if expected.starts_with("struct ") => "a table".to_owned(),
        expected => expected.to_owned(),
    }
}

fn choice(expected: &[&str]) -> String {
    expected.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
}
