//! The decoder of script replies: an answer code, then values that the caller reads from front to back.

use bytes::Bytes;
use redis::Value;
use tallystone_model::Refusal;

/// The first element of a reply of `lib/clock.lua`: it refused the call for its time.
pub(crate) const REFUSED: i64 = -1;
/// The same of `lib/timeline.lua`: the shard is on another timeline than the call.
pub(crate) const OTHER_TIMELINE: i64 = -2;

/// Why a script has refused the call, and Redis's time in Unix ms.
pub(crate) fn refused_at(reply: &Value) -> Option<(i64, u64)> {
    match reply {
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(why @ (REFUSED | OTHER_TIMELINE)), Value::Int(store_ms)] => {
                Some((*why, u64::try_from(*store_ms).ok()?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The reply of a script. `A` is the enum of its answer codes.
#[derive(Debug)]
pub struct ScriptReply<A> {
    /// The first element.
    pub answer: A,
    of_code: fn(i64) -> Option<A>,
    rest: std::vec::IntoIter<Value>,
}

impl<A> ScriptReply<A> {
    /// Decodes the answer code; `of_code` finds the answer of a number.
    ///
    /// # Errors
    /// [`Refusal::Internal`], as of every method: the reply is not what the caller expects.
    pub fn read(value: Value, of_code: fn(i64) -> Option<A>) -> Result<Self, Refusal> {
        let Value::Array(parts) = value else { return Err(Self::defect("no list")) };
        let mut rest = parts.into_iter();
        Ok(ScriptReply { answer: Self::decode(rest.next(), of_code)?, of_code, rest })
    }

    /// The refusal for a reply that the caller cannot use; `what` completes "a script answered …".
    pub fn defect(what: &str) -> Refusal {
        Refusal::Internal(format!("a script answered {what}"))
    }

    fn decode(value: Option<Value>, of_code: fn(i64) -> Option<A>) -> Result<A, Refusal> {
        match value {
            Some(Value::Int(code)) => of_code(code).ok_or_else(|| Self::defect("an unknown code")),
            _ => Err(Self::defect("no code")),
        }
    }

    /// The next value as an answer code.
    pub fn next_answer(&mut self) -> Result<A, Refusal> {
        Self::decode(self.rest.next(), self.of_code)
    }

    /// The next value as bytes.
    pub fn bytes(&mut self) -> Result<Bytes, Refusal> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Ok(Bytes::from(bytes)),
            other => Err(Self::defect(&format!("{other:?} for bytes"))),
        }
    }

    /// The next value as UTF-8 text.
    pub fn text(&mut self) -> Result<String, Refusal> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Self::defect("bytes for text"))
    }

    /// The next value as a number of 0 or more.
    pub fn number(&mut self) -> Result<u64, Refusal> {
        match self.rest.next() {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| Self::defect("a negative number")),
            Some(Value::BulkString(digits)) => {
                let number = std::str::from_utf8(&digits).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| Self::defect("no number"))
            }
            other => Err(Self::defect(&format!("{other:?} for a number"))),
        }
    }

    /// Whether every value has been read.
    pub fn is_at_end(&self) -> bool {
        self.rest.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: Vec<Value>) -> Result<ScriptReply<i64>, Refusal> {
        ScriptReply::read(Value::Array(parts), |code| (code < 3).then_some(code))
    }

    #[test]
    fn values_are_read_from_front_to_back() {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let mut reply = read(vec![Value::Int(0), Value::Int(7), bytes("42"), bytes("x"), Value::Int(2)]).unwrap();
        assert_eq!((reply.answer, reply.number(), reply.number()), (0, Ok(7), Ok(42)));
        assert_eq!((reply.text(), reply.is_at_end(), reply.next_answer()), (Ok("x".to_owned()), false, Ok(2)));
        assert!(reply.is_at_end());
        assert!(reply.bytes().is_err());
    }

    #[test]
    fn what_no_script_answers_is_a_defect() {
        for parts in [vec![], vec![Value::Int(3)], vec![Value::Nil]] {
            assert!(matches!(read(parts), Err(Refusal::Internal(_))));
        }
        assert!(ScriptReply::read(Value::Nil, Some).is_err());
        assert!(read(vec![Value::Int(0), Value::Int(-1)]).unwrap().number().is_err());
    }
}
