//! Redis's answers to what it cannot do.

use std::borrow::Cow;

/// The text of an error reply, its code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Cow<'static, str>);

impl Fault {
    pub(crate) const WRONG_TYPE: Fault =
        Fault(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
    pub(crate) const SYNTAX: Fault = Fault(Cow::Borrowed("ERR syntax error"));
    pub(crate) const NO_INTEGER: Fault = Fault(Cow::Borrowed("ERR value is not an integer or out of range"));
    pub(crate) const NO_FLOAT: Fault = Fault(Cow::Borrowed("ERR value is not a valid float"));

    pub(crate) const fn from_static(text: &'static str) -> Fault {
        Fault(Cow::Borrowed(text))
    }

    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault(text.into())
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
