//! What happens to a record: whether its add is sent, and what the answer means. Pure decisions.

use tallystone_client::{Added, Refused};
use tallystone_kafka::Claim;

/// No namespace accepts an event that is older: `accept_limit_ms` is at most 1 h. A clock that is wrong only makes records late.
const OLD_MS: i64 = 3_600_000;
/// The store accepts an event whose time is up to 1 s ahead of its clock.
const AHEAD_MS: i64 = 500;
/// By how much the time of a record is ahead that is written again for the second time.
const AGAIN_AHEAD_MS: i64 = 500;
/// It doubles with each further time, at most this number of times.
const AHEAD_DOUBLINGS: u32 = 7;
/// The time of a record that was written again may be ahead by this much: the most that it gets, and as much for clocks that differ.
const AGAIN_AHEAD_MS_MAX: i64 = 2 * (AGAIN_AHEAD_MS << AHEAD_DOUBLINGS);
/// A record that was written again this number of times has already got the most.
pub(crate) const REWRITES_MANY: u32 = AHEAD_DOUBLINGS + 3;

/// By how much the clocks of this machine and of the counters' store may differ.
const CLOCKS_MS: u64 = 60_000;

/// What a namespace says of the ages of adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AgeLimits {
    /// An older add does not count.
    pub(crate) accept_limit_ms: u64,
    /// The store does not know whether an older one has counted.
    pub(crate) close_after_ms: u64,
}

impl AgeLimits {
    /// Whether an add of this time may count by a call that begins at `now_ms` (both Unix ms). It counts only within the accept limit,
    /// but clocks differ, and the namespace may have been changed since it was read. So it may count at least as long as the store
    /// knows its token.
    pub(crate) fn may_count(self, at_ms: i64, now_ms: i64) -> bool {
        let age_ms = u64::try_from(now_ms.saturating_sub(at_ms)).unwrap_or_default();
        age_ms <= self.close_after_ms.max(self.accept_limit_ms.saturating_add(CLOCKS_MS))
    }
}

/// Why a record is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// It has no time.
    NoTime,
    /// Its time is in the future.
    Future,
    /// It is older than any namespace accepts, and was certainly never sent.
    Old,
    /// The counters refused it: it has certainly not counted, and never will.
    TooOld,
    /// The counters no longer know its token, but it was certainly never sent before.
    Expired,
}

impl Late {
    /// All of them.
    pub(crate) const ALL: [Late; 5] = [Late::NoTime, Late::Future, Late::Old, Late::TooOld, Late::Expired];

    /// Its name in headers and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Late::NoTime => "NO_TIME",
            Late::Future => "FUTURE",
            Late::Old => "OLD",
            Late::TooOld => "TOO_OLD",
            Late::Expired => "EXPIRED",
        }
    }
}

/// Why a record is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dead {
    /// It is no add.
    Malformed,
    /// The counters refuse it: a bad name, or a namespace in which a token counts more than once.
    Invalid,
    /// There is no such namespace.
    NamespaceNotFound,
    /// The count could exceed its range.
    Overflow,
    /// Its token has counted with another delta.
    TokenConflict,
    /// It can never be said whether it has counted.
    Unresolved,
}

impl Dead {
    /// All of them.
    pub(crate) const ALL: [Dead; 6] = [
        Dead::Malformed,
        Dead::Invalid,
        Dead::NamespaceNotFound,
        Dead::Overflow,
        Dead::TokenConflict,
        Dead::Unresolved,
    ];

    /// Its name in headers and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Dead::Malformed => "MALFORMED",
            Dead::Invalid => "INVALID_ARGUMENT",
            Dead::NamespaceNotFound => "NAMESPACE_NOT_FOUND",
            Dead::Overflow => "OVERFLOW",
            Dead::TokenConflict => "TOKEN_CONFLICT",
            Dead::Unresolved => "UNRESOLVED",
        }
    }
}

/// What finally happens to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has counted, now or before.
    Counted { duplicate: bool },
    /// It is written again, and its place there is its new token.
    Late(Late),
    /// It becomes a dead letter.
    Dead(Dead, String),
}

/// Whether an add is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is sent. `perhaps_counted`: an earlier member may have sent it.
    Send { perhaps_counted: bool },
    /// It is not sent, because it cannot count with its time. The reason is the same for every member that may decide this:
    /// only the durable claim and the record are used for what may have been sent.
    Rewrite(Late),
}

/// By how much the time of a record is ahead that is written again, after this number of earlier times. A member that is slow, or whose
/// clock is behind, would otherwise write each time a record that is too old before it is sent. It waits where it is not slow.
pub(crate) fn again_ahead_ms(rewrites: u32) -> i64 {
    rewrites.checked_sub(1).map_or(0, |doublings| AGAIN_AHEAD_MS << doublings.min(AHEAD_DOUBLINGS))
}

/// Decides it for a record at this offset and time (Unix ms) that was written again this number of times. `open` is the claim that was durable
/// when the record was read; the caller's claim is made with the same `now_ms`.
pub(crate) fn route(offset: i64, at_ms: Option<i64>, rewrites: u32, open: &Claim, now_ms: i64) -> Route {
    let Some(at_ms) = at_ms else { return Route::Rewrite(Late::NoTime) };
    // A producer's record that is ahead must not keep others waiting.
    let ahead_ms = if rewrites == 0 { AHEAD_MS } else { AGAIN_AHEAD_MS_MAX };
    let may_be_sent = |from_ms: i64, until_ms: i64| (from_ms - OLD_MS..=until_ms + ahead_ms).contains(&at_ms);
    if offset < open.to_offset && may_be_sent(open.from_ms, open.until_ms) {
        return Route::Send { perhaps_counted: true };
    }
    match at_ms {
        _ if may_be_sent(now_ms, now_ms) => Route::Send { perhaps_counted: false },
        _ if at_ms > now_ms => Route::Rewrite(Late::Future),
        _ => Route::Rewrite(Late::Old),
    }
}

/// What an answer of the counters means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddOutcome {
    /// It is definite.
    Is(Fate),
    /// The store's clock has not come to the time of the add, which has certainly not counted by this call.
    Early,
    /// The same add may have another answer later.
    Later { why: String, perhaps_counted: bool },
}

/// Reads the answer to an add; `perhaps_counted`: an earlier call may have counted it.
pub(crate) fn answer(result: Result<&Added, &Refused>, perhaps_counted: bool) -> AddOutcome {
    let refused = match result {
        Ok(added) => return AddOutcome::Is(Fate::Counted { duplicate: added.duplicate }),
        Err(refused) => refused,
    };
    let dead = |dead| AddOutcome::Is(Fate::Dead(dead, refused.message.clone()));
    match refused.reason.as_str() {
        "TOO_OLD" => AddOutcome::Is(Fate::Late(Late::TooOld)),
        "TOKEN_EXPIRED" if perhaps_counted => dead(Dead::Unresolved),
        "TOKEN_EXPIRED" => AddOutcome::Is(Fate::Late(Late::Expired)),
        "INVALID_ARGUMENT" => dead(Dead::Invalid),
        "NAMESPACE_NOT_FOUND" => dead(Dead::NamespaceNotFound),
        "OVERFLOW" => dead(Dead::Overflow),
        "TOKEN_CONFLICT" => dead(Dead::TokenConflict),
        "TOO_EARLY" => AddOutcome::Early,
        reason => {
            // A store that has lost its data, or whose archive is damaged, counts nothing.
            let is_certain = matches!(reason, "NAMESPACE_CHANGED" | "DATA_LOSS")
                || refused.metadata.get("applied").is_some_and(|applied| applied == "no");
            let why = format!("{reason}: {}", refused.message);
            AddOutcome::Later { why, perhaps_counted: perhaps_counted || !is_certain }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const NOW: i64 = 1_800_000_000_000;

    fn claim(to_offset: i64, from_ms: i64, until_ms: i64) -> Claim {
        Claim { to_offset, from_ms, until_ms }
    }

    #[test]
    fn n17_what_was_never_claimed_is_sent_while_it_may_count() {
        let none = claim(5, 0, 0);
        let route = |at_ms| route(5, at_ms, 0, &none, NOW);
        let sent = Route::Send { perhaps_counted: false };
        for at_ms in [NOW, NOW + AHEAD_MS, NOW - OLD_MS] {
            assert_eq!(route(Some(at_ms)), sent);
        }
        assert_eq!(route(None), Route::Rewrite(Late::NoTime));
        assert_eq!(route(Some(NOW + AHEAD_MS + 1)), Route::Rewrite(Late::Future));
        assert_eq!(route(Some(NOW - OLD_MS - 1)), Route::Rewrite(Late::Old));
        assert_eq!(route(Some(-5)), Route::Rewrite(Late::Old));
    }

    /// Another member has claimed these offsets and may have sent some of them. What it may have sent must get an answer of the
    /// counters; what it cannot have sent must not be sent later, when its time has come.
    #[test]
    fn n17_what_was_claimed_is_sent_again_if_it_was_sent() {
        let day_ms = 86_400_000;
        let open = claim(10, NOW - day_ms, NOW - day_ms + 2_000);
        let route = |offset, at_ms| route(offset, Some(at_ms), 0, &open, NOW);
        let again = Route::Send { perhaps_counted: true };
        assert_eq!(route(9, NOW - day_ms), again, "old, but it may have counted a day ago");
        assert_eq!(route(9, NOW - day_ms - OLD_MS), again);
        assert_eq!(route(9, NOW - day_ms + 2_000 + AHEAD_MS), again);
        assert_eq!(route(9, NOW - day_ms - OLD_MS - 1), Route::Rewrite(Late::Old), "it was too old then already");
        assert_eq!(route(9, NOW - 12 * 3_600_000), Route::Rewrite(Late::Old), "it was in the future then");
        assert_eq!(route(9, NOW), Route::Send { perhaps_counted: false });
        assert_eq!(route(10, NOW - day_ms), Route::Rewrite(Late::Old), "beyond the claim");
    }

    /// A member that takes over claims with its clock; what it sends is within its claim, also if its clock is behind.
    #[test]
    fn n17_what_is_sent_is_within_the_claim() {
        for (open, now_ms) in [(claim(0, 0, 0), NOW), (claim(10, NOW, NOW + 5_000), NOW - 7_000)] {
            let (from_ms, until_ms) = if open.to_offset > 0 {
                (open.from_ms.min(now_ms), open.until_ms.max(now_ms))
            } else {
                (now_ms, now_ms)
            };
            for (at_ms, rewrites) in (NOW - 2 * OLD_MS..NOW + 200_000).step_by(997).zip([0, 1, 9].into_iter().cycle()) {
                if let Route::Send { .. } = route(5, Some(at_ms), rewrites, &open, now_ms) {
                    let later = route(5, Some(at_ms), rewrites, &claim(10, from_ms, until_ms), NOW + 30 * 86_400_000);
                    assert_eq!(later, Route::Send { perhaps_counted: true }, "{at_ms}");
                }
            }
        }
    }

    /// However slow a member is, a record that it writes again is in time at last.
    #[test]
    fn n17_a_record_that_is_late_again_and_again_gets_a_time_that_is_ahead() {
        let ahead_ms: Vec<i64> = (0..REWRITES_MANY + 1).map(again_ahead_ms).collect();
        assert_eq!(ahead_ms, [0, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000, 64_000]);
        let none = claim(5, 0, 0);
        for (rewrites, ahead_ms) in (1..).zip(ahead_ms) {
            let sent = route(5, Some(NOW + ahead_ms), rewrites, &none, NOW);
            assert_eq!(sent, Route::Send { perhaps_counted: false }, "its own clock is not too early for it");
            // Another member's clock is behind.
            let sent = route(5, Some(NOW + ahead_ms), rewrites, &none, NOW - 60_000);
            assert_eq!(sent, Route::Send { perhaps_counted: false });
        }
        assert_eq!(route(5, Some(NOW + AGAIN_AHEAD_MS_MAX + 1), 8, &none, NOW), Route::Rewrite(Late::Future));
    }

    #[test]
    fn n17_an_add_that_was_too_old_when_its_call_began_cannot_have_counted() {
        let may_count = |accept_limit_ms, close_after_ms, age_ms| {
            AgeLimits { accept_limit_ms, close_after_ms }.may_count(NOW - age_ms, NOW)
        };
        // The clocks differ by up to a minute.
        assert!(may_count(1_000, 60_000, 61_000) && !may_count(1_000, 60_000, 61_001));
        assert!(may_count(50_000, 60_000, 110_000) && !may_count(50_000, 60_000, 110_001));
        // The store knows the token.
        assert!(may_count(5_000, 518_400_000, 518_400_000) && !may_count(5_000, 518_400_000, 518_400_001));
        assert!(may_count(1_000, 60_000, 0) && may_count(1_000, 60_000, -5_000));
        assert!(may_count(u64::MAX, u64::MAX, NOW), "what the namespace says is not known");
    }

    #[test]
    fn n17_answers_are_definite_or_come_later() {
        let refused = |reason: &str, applied: Option<&str>| Refused {
            code: tonic::Code::Unknown,
            reason: reason.to_owned(),
            message: "why".to_owned(),
            field: None,
            metadata: applied
                .map(|applied| ("applied".to_owned(), applied.to_owned()))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            applied: tallystone_client::Applied::No,
            retry_after: None,
        };
        let of = |reason, perhaps| answer(Err(&refused(reason, None)), perhaps);
        let dead = |dead| AddOutcome::Is(Fate::Dead(dead, "why".to_owned()));
        for perhaps in [false, true] {
            let added = Added { event_time_ms: 5, duplicate: perhaps };
            assert_eq!(answer(Ok(&added), false), AddOutcome::Is(Fate::Counted { duplicate: perhaps }));
            assert_eq!(of("TOO_OLD", perhaps), AddOutcome::Is(Fate::Late(Late::TooOld)));
            assert_eq!(of("OVERFLOW", perhaps), dead(Dead::Overflow));
            assert_eq!(of("INVALID_ARGUMENT", perhaps), dead(Dead::Invalid));
            assert_eq!(of("TOKEN_CONFLICT", perhaps), dead(Dead::TokenConflict));
            assert_eq!(of("NAMESPACE_NOT_FOUND", perhaps), dead(Dead::NamespaceNotFound));
        }
        assert_eq!(of("TOKEN_EXPIRED", false), AddOutcome::Is(Fate::Late(Late::Expired)));
        assert_eq!(of("TOKEN_EXPIRED", true), dead(Dead::Unresolved));
        assert_eq!((of("TOO_EARLY", false), of("TOO_EARLY", true)), (AddOutcome::Early, AddOutcome::Early));
        for (reason, applied, unsure) in [
            ("STORE_UNAVAILABLE", Some("no"), false),
            ("STORE_UNAVAILABLE", Some("unknown"), true),
            ("OVERLOADED", Some("no"), false),
            ("NAMESPACE_CHANGED", None, false),
            ("DATA_LOSS", None, false),
            ("PERMISSION_DENIED", None, true),
            ("", None, true),
        ] {
            for before in [false, true] {
                let AddOutcome::Later { perhaps_counted, .. } = answer(Err(&refused(reason, applied)), before) else {
                    panic!("{reason} is not definite");
                };
                assert_eq!(perhaps_counted, before || unsure, "{reason}");
            }
        }
    }
}
