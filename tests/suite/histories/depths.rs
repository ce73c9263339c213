//! Counts are exact (Q9) and never stale (Q13): each lies between what was certainly there before the count began and
//! what could be there when it was answered.

use super::history::{End, Op, Span, What};
use super::leases::{Hold, holds};
use std::collections::HashMap;
use tallystone_client::State;

/// Every violation found. Messages are neither purged nor collected while the history runs.
pub(crate) fn check(history: &[Op]) -> Vec<String> {
    let mut origins: HashMap<&str, &str> = HashMap::new();
    for op in history {
        if let What::Enqueued { id, origin } = &op.what {
            origins.insert(id, origin);
        }
    }
    let facts =
        |origin: Option<&str>| Facts::of(history, |id| origin.is_none_or(|wanted| origins.get(id) == Some(&wanted)));
    let mut by_origin: HashMap<Option<&str>, Facts> = HashMap::new();
    let mut found = Vec::new();
    for Op { span, what } in history {
        let What::Counted { origin, depth } = what else { continue };
        let facts = by_origin.entry(origin.as_deref()).or_insert_with(|| facts(origin.as_deref()));
        let total = depth.live() + depth.completed + depth.canceled + depth.errored;
        let running = facts.holds.iter().filter(|hold| hold.granted.before(*span) && hold.alive_until_us > span.end_us);
        for (name, counted, (least, most)) in [
            ("messages", total, Facts::bounds(&facts.enqueued, *span)),
            ("completed messages", depth.completed, Facts::bounds(&facts.completed, *span)),
            ("running messages", depth.running, (running.count() as u64, u64::MAX)),
        ] {
            if !(least..=most).contains(&counted) {
                found.push(format!(
                    "{span:?} of {origin:?}: {counted} {name} counted, but {least} to {most} were there"
                ));
            }
        }
    }
    found
}

/// What adds to the counts of one filter.
struct Facts<'a> {
    enqueued: Vec<Span>,
    completed: Vec<Span>,
    holds: Vec<Hold<'a>>,
}

impl<'a> Facts<'a> {
    fn of(history: &'a [Op], matches: impl Fn(&str) -> bool) -> Self {
        let spans = |counts: fn(&What) -> Option<&String>| {
            let matching = history.iter().filter(|op| counts(&op.what).is_some_and(|id| matches(id)));
            matching.map(|op| op.span).collect()
        };
        Facts {
            enqueued: spans(|what| match what {
                What::Enqueued { id, .. } => Some(id),
                _ => None,
            }),
            completed: spans(|what| match what {
                What::Ended { id, end: End::To(State::Completed, _), .. } => Some(id),
                _ => None,
            }),
            holds: holds(history).into_iter().filter(|hold| matches(hold.id)).collect(),
        }
    }

    /// How many had certainly happened, and how many had perhaps.
    fn bounds(spans: &[Span], count: Span) -> (u64, u64) {
        let certainly = spans.iter().filter(|span| span.before(count)).count();
        let perhaps = spans.iter().filter(|span| !count.before(**span)).count();
        (certainly as u64, perhaps as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_client::Depth;

    fn op(begin_us: u64, end_us: u64, what: What) -> Op {
        Op { span: Span { begin_us, end_us }, what }
    }

    fn enqueued(begin_us: u64, end_us: u64, id: &str, origin: &str) -> Op {
        op(begin_us, end_us, What::Enqueued { id: id.to_owned(), origin: origin.to_owned() })
    }

    fn counted(begin_us: u64, end_us: u64, origin: Option<&str>, depth: Depth) -> Op {
        op(begin_us, end_us, What::Counted { origin: origin.map(str::to_owned), depth })
    }

    /// Two messages, the first of which is leased and then completed.
    fn base() -> Vec<Op> {
        let id = || "a".to_owned();
        vec![
            enqueued(0, 10, "a", "JFK"),
            enqueued(0, 10, "b", "LGA"),
            op(
                20,
                30,
                What::Leased {
                    id: id(),
                    key: None,
                    fencing_token: 1,
                    lease_ms: 1_000,
                    left_ms: 1_000,
                    version: 2,
                    kept: false,
                },
            ),
            op(5_000, 5_010, What::Ended { id: id(), fencing_token: 1, end: End::To(State::Completed, 3) }),
        ]
    }

    fn with(count: Op) -> Vec<String> {
        check(&base().into_iter().chain([count]).collect::<Vec<_>>())
    }

    #[test]
    fn bad_counts_are_caught() {
        let depth = |pending, running, completed| Depth { pending, running, completed, ..Depth::default() };
        for (words, count) in [
            ("1 messages counted", counted(11, 12, None, depth(1, 0, 0))),
            ("3 messages counted", counted(11, 12, None, depth(3, 0, 0))),
            ("1 completed messages counted", counted(100, 110, None, depth(0, 1, 1))),
            ("0 completed messages counted", counted(6_000, 6_010, None, depth(1, 1, 0))),
            ("0 running messages counted", counted(100, 110, None, depth(2, 0, 0))),
            ("0 running messages counted", counted(100, 110, Some("JFK"), depth(1, 0, 0))),
            ("2 messages counted", counted(11, 12, Some("LGA"), depth(2, 0, 0))),
        ] {
            let found = with(count);
            assert!(found.iter().any(|violation| violation.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn good_counts_pass() {
        let depth = |pending, running, completed| Depth { pending, running, completed, ..Depth::default() };
        for count in [
            counted(0, 12, None, depth(1, 0, 0)),
            counted(11, 25, None, depth(1, 1, 0)),
            counted(100, 110, Some("LGA"), depth(1, 0, 0)),
            counted(4_000, 5_005, None, depth(1, 0, 1)),
            counted(4_000, 5_005, None, depth(1, 1, 0)),
            counted(6_000, 6_005, Some("JFK"), depth(0, 0, 1)),
        ] {
            assert_eq!(with(count), Vec::<String>::new());
        }
    }
}
