//! `TOKEN token TIME ms` at the end of a command: repeated, it counts once (W4).

use super::{Call, Stop};
use crate::args::unsigned;
use crate::context::now_ms;
use tallystone_compact::{Admission, CounterSet, Token};

/// The first word of a token.
pub(super) const TOKEN: &[u8] = b"TOKEN";
/// Arguments that a token takes.
pub(super) const TOKEN_ARGS: usize = 4;

/// The token of a command, as it was written.
pub(super) struct Given<'a> {
    text: &'a [u8],
    time_ms: u64,
    content: Vec<&'a [u8]>,
}

/// The token at the end of the arguments, if there is one. `ARGS_MIN` of the command come before it.
#[inline]
pub(super) fn given<'a>(call: &Call<'a>, args_min: usize) -> Result<Option<Given<'a>>, Stop> {
    let count = call.args.len();
    if count < args_min + TOKEN_ARGS {
        return Ok(None);
    }
    let begin = count - TOKEN_ARGS;
    let is = |place: usize, keyword: &[u8]| call.args.get(place).eq_ignore_ascii_case(keyword);
    if !is(begin, TOKEN) || !is(begin + 2, b"TIME") {
        return Ok(None);
    }
    let time_ms = unsigned(call.args.get(begin + 3)).ok_or(Stop::text("ERR TIME is in Unix milliseconds"))?;
    let content = (2..begin).map(|place| call.args.get(place)).collect();
    Ok(Some(Given { text: call.args.get(begin + 1), time_ms, content }))
}

impl Given<'_> {
    fn token(&self) -> Token<'_> {
        Token { text: self.text, time_ms: self.time_ms, content: &self.content }
    }

    /// Whether the command was carried out before.
    pub(super) fn is_repeated(&self, call: &Call<'_>, set: &CounterSet) -> Result<bool, Stop> {
        Ok(set.admit(call.mode(), self.token(), now_ms())? == Admission::Repeated)
    }

    /// The command was carried out.
    pub(super) fn remember(&self, set: &mut CounterSet) {
        set.remember(self.token());
    }
}
