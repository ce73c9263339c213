//! One add of a budget, from its first attempt to a definite answer.

use crate::counter::IdempotencyToken;
use crate::error::{Applied, Error, Refused};
use tonic::Code;

/// What the add does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Grant,
    GiveBack,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    /// At least 1.
    pub(super) units: i64,
    pub(super) token: IdempotencyToken,
    /// The highest limit of its attempts: any of them may be the one that counts.
    pub(super) limit_max: i64,
    /// An attempt had no answer. It may have counted, or still be on its way.
    has_unanswered: bool,
}

/// What a failed attempt says of the add.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Certainly not counted, now or ever.
    NotCounted,
    /// The same, because of its bound; the count, if the service said it.
    BoundReached(Option<i64>),
    /// The same token must be sent again.
    Unsettled,
    /// The service no longer knows, so no caller may use the units.
    Lost,
}

impl Request {
    /// A new one, which happens now.
    pub(super) fn new(purpose: Purpose, units: i64) -> Request {
        Request { purpose, units, token: IdempotencyToken::now(), limit_max: i64::MIN, has_unanswered: false }
    }

    /// What this answer, which is not that the add counted, says.
    pub(super) fn judge(&mut self, error: &Error) -> Verdict {
        match error {
            Error::Refused(refused) if is_of_the_service(refused) => self.judge_refusal(refused),
            Error::Unavailable { applied: Applied::No, .. } => self.unless_unanswered(Verdict::NotCounted),
            _ => {
                self.has_unanswered = true;
                Verdict::Unsettled
            }
        }
    }

    fn judge_refusal(&self, refused: &Refused) -> Verdict {
        match refused.reason.as_str() {
            // Of all attempts: the service accepts none with this time any more.
            "TOO_OLD" => Verdict::NotCounted,
            "TOKEN_EXPIRED" | "TOKEN_CONFLICT" => Verdict::Lost,
            "BOUND_REACHED" => {
                let count = refused.metadata.get("count").and_then(|count| count.parse().ok());
                self.unless_unanswered(Verdict::BoundReached(count))
            }
            _ => self.unless_unanswered(Verdict::NotCounted),
        }
    }

    /// A refusal is of one attempt. An earlier one without an answer may still arrive, and count when there is room.
    fn unless_unanswered(&self, verdict: Verdict) -> Verdict {
        if self.has_unanswered { Verdict::Unsettled } else { verdict }
    }
}

/// Whether the service decided this about the add. A refusal without a reason is one of a proxy; after a defect the service may have
/// counted.
fn is_of_the_service(refused: &Refused) -> bool {
    !refused.reason.is_empty() && !matches!(refused.code, Code::Internal | Code::Unknown | Code::DataLoss)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn refused(reason: &str) -> Error {
        refused_as(Code::FailedPrecondition, reason)
    }

    fn refused_as(code: Code, reason: &str) -> Error {
        let metadata = BTreeMap::from([("count".to_owned(), "40".to_owned())]);
        let reason = reason.to_owned();
        Error::Refused(Refused { code, reason, metadata, ..Refused::protocol("") })
    }

    fn unavailable(applied: Applied) -> Error {
        Error::Unavailable { applied, message: String::new() }
    }

    #[test]
    fn l4_a_refusal_settles_an_add_only_if_no_attempt_is_unanswered() {
        let mut request = Request::new(Purpose::Grant, 5);
        assert_eq!(request.judge(&refused("BOUND_REACHED")), Verdict::BoundReached(Some(40)));
        assert_eq!(request.judge(&refused("TOO_EARLY")), Verdict::NotCounted);
        assert_eq!(request.judge(&unavailable(Applied::No)), Verdict::NotCounted);
        assert_eq!(request.judge(&unavailable(Applied::Unknown)), Verdict::Unsettled);
        for error in [refused("BOUND_REACHED"), refused("INVALID_ARGUMENT"), unavailable(Applied::No)] {
            assert_eq!(request.judge(&error), Verdict::Unsettled, "{error:?}");
        }
        assert_eq!(request.judge(&refused("TOO_OLD")), Verdict::NotCounted);
        assert_eq!(request.judge(&refused("TOKEN_EXPIRED")), Verdict::Lost);
    }

    #[test]
    fn l4_what_a_proxy_refuses_or_a_defect_ends_is_unanswered() {
        for error in [refused(""), refused_as(Code::Internal, "DEFECT")] {
            let mut request = Request::new(Purpose::GiveBack, 5);
            assert_eq!(request.judge(&error), Verdict::Unsettled);
            assert_eq!(request.judge(&refused("OVERFLOW")), Verdict::Unsettled);
        }
    }
}
