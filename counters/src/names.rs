//! Names that callers give: parsed once where they arrive, valid from then on.

use crate::refusal::Refusal;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::fmt;
use tallystone_model::limits::{COUNTER_BYTES_MAX, NAMESPACE_BYTES_MAX};
use tallystone_model::names::check_text;

/// The longest name of a region, in bytes.
pub const REGION_BYTES_MAX: usize = 32;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 64;

macro_rules! text {
    ($(#[$doc:meta])* $Name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $Name(String);

        impl $Name {
            /// Checks and wraps.
            pub fn parse(text: impl Into<String>) -> Result<Self, Refusal> {
                let (text, check): (String, fn(&str) -> Result<(), Refusal>) = (text.into(), $check);
                check(&text)?;
                Ok($Name(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text! {
    /// A counter: 1 to 128 bytes without control characters.
    CounterName, |text| Ok(check_text("counter", text, 1, COUNTER_BYTES_MAX)?)
}
text! {
    /// An idempotency token, which identifies an event together with its time (N3): 1 to 64 bytes without control
    /// characters.
    Token, |text| Ok(check_text("token", text, 1, TOKEN_BYTES_MAX)?)
}

impl Token {
    /// A random token, for an event that is never repeated.
    pub fn drawn() -> Token {
        Token(BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 8]>()))
    }
}

text! {
    /// A namespace's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    NamespaceName, |text| check_name("namespace", "a namespace name", text, NAMESPACE_BYTES_MAX)
}
text! {
    /// A region's name (N12): 1 to 32 of `A-Z a-z 0-9 . _ -`.
    #[derive(Serialize, Deserialize)]
    #[serde(try_from = "String", into = "String")]
    RegionName, |text| check_name("region", "a region's name", text, REGION_BYTES_MAX)
}

impl TryFrom<String> for RegionName {
    type Error = Refusal;

    fn try_from(name: String) -> Result<RegionName, Refusal> {
        RegionName::parse(name)
    }
}

impl From<RegionName> for String {
    fn from(name: RegionName) -> String {
        name.0
    }
}

/// Refuses a name that is empty, longer than this, or has characters that `what`, such as `a namespace name`, must not have.
fn check_name(field: &'static str, what: &str, name: &str, bytes_max: usize) -> Result<(), Refusal> {
    check_text(field, name, 1, bytes_max)?;
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
        Some(c) => Err(Refusal::invalid(field, format!("has {c:?}; {what} may only have A-Z a-z 0-9 . _ -"))),
        None => Ok(()),
    }
}

impl CounterName {
    /// Checks what names may begin with; empty: all do.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] of this field.
    pub(crate) fn check_prefix(field: &'static str, prefix: &str) -> Result<(), Refusal> {
        if prefix.is_empty() || CounterName::parse(prefix).is_ok() {
            return Ok(());
        }
        Err(Refusal::invalid(field, "must begin the name of a counter"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n2_names_are_bounded() {
        for bad in [String::new(), "x".repeat(129), "a\nb".to_owned()] {
            assert!(matches!(CounterName::parse(bad), Err(Refusal::Invalid { field: "counter", .. })));
        }
        assert!(CounterName::parse("é".repeat(64)).is_ok());
        for bad in ["", "a/b", "a b", "{a}"] {
            assert!(NamespaceName::parse(bad).is_err(), "{bad}");
        }
    }
}
