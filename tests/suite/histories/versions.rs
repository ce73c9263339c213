//! No stale answer after an acknowledged write (Q6, Q13): each message is a register of its version. Writes raise it by
//! one, so the versions are the order of the writes, and the history is linearizable if no operation shows a version
//! below one that another had shown before the operation began.

use super::history::{End, Op, Span, What};
use std::collections::{BTreeMap, HashMap};
use tallystone_client::State;

/// One operation that shows the version of a message.
struct Shown {
    span: Span,
    /// 0: the message is not there.
    version: u32,
    state: Option<State>,
    /// It made this version, and no other operation did.
    wrote: bool,
}

/// Every violation found.
pub(crate) fn check(history: &[Op]) -> Vec<String> {
    let mut messages: BTreeMap<&str, Vec<Shown>> = BTreeMap::new();
    for Op { span, what } in history {
        let (id, version, state, wrote) = match what {
            // A repeated Enqueue answers the same, so it shows only that the message is there.
            What::Enqueued { id, .. } => (id, 1, None, false),
            What::Leased { id, version, .. } => (id, *version, Some(State::Running), true),
            What::Ended { id, end: End::To(state, version), .. } => (id, *version, Some(*state), true),
            // It may have been so before.
            What::Changed { id, state, version } => (id, *version, Some(*state), false),
            What::Seen { id, found: Some((state, version)) } => (id, *version, Some(*state), false),
            What::Seen { id, found: None } => (id, 0, None, false),
            _ => continue,
        };
        messages.entry(id).or_default().push(Shown { span: *span, version, state, wrote });
    }
    let mut found = Vec::new();
    for (id, mut shown) in messages {
        check_versions_agree(id, &shown, &mut found);
        check_order(id, &mut shown, &mut found);
    }
    found
}

/// One version is one write and one state.
fn check_versions_agree(id: &str, shown: &[Shown], found: &mut Vec<String>) {
    let mut written: HashMap<u32, Span> = HashMap::new();
    let mut states: HashMap<u32, State> = HashMap::new();
    for one in shown {
        let version = one.version;
        if one.wrote && written.insert(version, one.span).is_some() {
            found.push(format!("message {id}: version {version} was written twice"));
        }
        if let Some(state) = one.state
            && let Some(other) = states.insert(version, state).filter(|other| *other != state)
        {
            found.push(format!("message {id}: version {version} was {other} and {state}"));
        }
    }
}

/// What began after another's response shows at least its version, and more if it wrote.
fn check_order(id: &str, shown: &mut [Shown], found: &mut Vec<String>) {
    let mut by_end: Vec<(u64, u32)> = shown.iter().map(|one| (one.span.end_us, one.version)).collect();
    by_end.sort_unstable();
    shown.sort_unstable_by_key(|one| one.span.begin_us);
    let (mut answered, mut newest) = (by_end.into_iter().peekable(), 0);
    for one in shown {
        while let Some((_, version)) = answered.next_if(|(end_us, _)| *end_us < one.span.begin_us) {
            newest = newest.max(version);
        }
        let (version, span) = (one.version, one.span);
        if version < newest || (one.wrote && version == newest) {
            let verb = if one.wrote { "wrote" } else { "showed" };
            found.push(format!("message {id}: {span:?} {verb} version {version} after version {newest} was answered"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(begin_us: u64, end_us: u64, what: What) -> Op {
        Op { span: Span { begin_us, end_us }, what }
    }

    fn id() -> String {
        "a".to_owned()
    }

    fn enqueued(begin_us: u64, end_us: u64) -> Op {
        op(begin_us, end_us, What::Enqueued { id: id(), origin: String::new() })
    }

    fn leased(begin_us: u64, end_us: u64, version: u32) -> Op {
        op(
            begin_us,
            end_us,
            What::Leased {
                id: id(),
                key: None,
                fencing_token: 1,
                lease_ms: 1_000,
                left_ms: 1_000,
                version,
                kept: false,
            },
        )
    }

    fn seen(begin_us: u64, end_us: u64, found: Option<(State, u32)>) -> Op {
        op(begin_us, end_us, What::Seen { id: id(), found })
    }

    fn completed(begin_us: u64, end_us: u64, version: u32) -> Op {
        op(begin_us, end_us, What::Ended { id: id(), fencing_token: 1, end: End::To(State::Completed, version) })
    }

    #[test]
    fn bad_histories_are_caught() {
        let base = [enqueued(0, 10), leased(20, 30, 2), completed(40, 50, 3)];
        for (words, last) in [
            ("showed version 0 after version 3", seen(60, 70, None)),
            ("showed version 2 after version 3", seen(60, 70, Some((State::Running, 2)))),
            ("showed version 1 after version 2", seen(35, 70, Some((State::Pending, 1)))),
            ("wrote version 3 after version 3", leased(60, 70, 3)),
            ("version 3 was written twice", leased(45, 70, 3)),
            ("version 3 was completed and pending", seen(45, 70, Some((State::Pending, 3)))),
            ("showed version 0 after version 1", seen(11, 12, None)),
        ] {
            let history: Vec<Op> = base.iter().cloned().chain([last]).collect();
            let found = check(&history);
            assert!(found.iter().any(|violation| violation.contains(words)), "{words}: {found:?}");
        }
        // What one reader has seen, the next must see, though the write was not answered yet.
        let history = [seen(5, 6, Some((State::Pending, 1))), seen(7, 8, None), enqueued(0, 10)];
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn good_histories_pass() {
        let history = [
            seen(0, 5, None),
            enqueued(0, 10),
            seen(4, 9, Some((State::Pending, 1))),
            leased(20, 30, 2),
            seen(25, 35, Some((State::Pending, 1))),
            seen(31, 60, Some((State::Completed, 3))),
            completed(40, 70, 3),
            seen(45, 55, Some((State::Running, 2))),
        ];
        assert_eq!(check(&history), Vec::<String>::new());
    }
}
