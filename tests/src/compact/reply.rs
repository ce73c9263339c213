//! A reply of the engine, and how it is written down in a test.

use std::fmt;

/// A reply. `Display` writes it in one line: `5`, `OK`, `[1 [2 3]]`, `{name: value}`, `nil`, `!OVERFLOW text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status.
    Simple(String),
    /// An error: its code and text.
    Error(String),
    /// An integer.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
    /// Pairs (RESP3).
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// The integer that it is.
    ///
    /// # Panics
    /// It is none.
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            other => panic!("an integer, not {other}"),
        }
    }

    /// The integers of an array.
    ///
    /// # Panics
    /// It is none, or has others.
    pub fn ints(&self) -> Vec<i64> {
        self.items().iter().map(Reply::int).collect()
    }

    /// The items of an array.
    ///
    /// # Panics
    /// It is none.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("an array, not {other}"),
        }
    }

    /// The bytes that it is.
    ///
    /// # Panics
    /// It is none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            other => panic!("bytes, not {other}"),
        }
    }

    /// The text of bytes or of a status.
    ///
    /// # Panics
    /// It is another reply.
    pub fn text(&self) -> String {
        match self {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Simple(text) => text.clone(),
            other => panic!("a text, not {other}"),
        }
    }

    /// The value of a name, in a map or in an array of pairs.
    ///
    /// # Panics
    /// There is none.
    pub fn field(&self, name: &str) -> &Reply {
        let is_it = |key: &Reply| key.text() == name;
        let found = match self {
            Reply::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
            Reply::Array(items) => items.chunks(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
            _ => None,
        };
        found.unwrap_or_else(|| panic!("no '{name}' in {self}"))
    }

    /// The code of an error: its first word.
    pub fn code(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => text.split(' ').next(),
            _ => None,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(out, "{text}"),
            Reply::Error(text) => write!(out, "!{text}"),
            Reply::Int(number) => write!(out, "{number}"),
            Reply::Bulk(bytes) => write!(out, "{}", String::from_utf8_lossy(bytes)),
            Reply::Nil => write!(out, "nil"),
            Reply::Array(items) => {
                write!(out, "[")?;
                for (place, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if place > 0 { " " } else { "" })?;
                }
                write!(out, "]")
            }
            Reply::Map(pairs) => {
                write!(out, "{{")?;
                for (place, (key, value)) in pairs.iter().enumerate() {
                    write!(out, "{}{key}: {value}", if place > 0 { ", " } else { "" })?;
                }
                write!(out, "}}")
            }
        }
    }
}
