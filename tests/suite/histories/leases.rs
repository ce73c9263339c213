//! No message and no key is leased twice at once, fencing tokens rise, and no call ends a lost lease (Q4, Q11, Q13).
//!
//! A lease is known only by what its worker saw, so each has two bounds: it lived *at least* until `alive_until_us`,
//! counted with what was left of it from the invocation of its Dequeue or last extension, and it was *certainly* over from `over_from_us` on,
//! counted from the response. Every judgement uses the bound that cannot accuse a queue that is right. After a failover leases may end
//! later, never earlier (decision 248).

use super::history::{End, Op, Span, What};
use std::collections::{BTreeMap, HashMap};

/// Leases are counted in whole ms of the store's clock, spans in µs of ours.
const CLOCK_SLACK_US: u64 = 5_000;

/// One lease, as far as its worker can know.
pub(crate) struct Hold<'a> {
    pub(crate) id: &'a str,
    key: Option<&'a str>,
    fencing_token: u64,
    /// The Dequeue.
    pub(crate) granted: Span,
    /// It was alive from its grant at least until here.
    pub(crate) alive_until_us: u64,
    /// It was over from here at the latest; `None`: its worker extends it by itself.
    over_from_us: Option<u64>,
}

/// Every violation found. `late_ms`: by how much a lease may end later than its worker expects.
pub(crate) fn check(history: &[Op], late_ms: u64) -> Vec<String> {
    let holds = holds(history);
    let mut found = Vec::new();
    let mut groups: HashMap<(&str, &str), Vec<&Hold>> = HashMap::new();
    for hold in &holds {
        groups.entry(("message", hold.id)).or_default().push(hold);
        if let Some(key) = hold.key {
            groups.entry(("key", key)).or_default().push(hold);
        }
    }
    for ((kind, name), group) in &mut groups {
        group.sort_by_key(|hold| hold.fencing_token);
        check_group(&format!("{kind} {name}"), group, &mut found);
    }
    check_ends(history, &holds, late_ms, &mut found);
    check_pauses(history, &mut found);
    found
}

/// The leases of a history.
pub(crate) fn holds(history: &[Op]) -> Vec<Hold<'_>> {
    let mut holds: BTreeMap<(&str, u64), Hold> = BTreeMap::new();
    let mut twice = Vec::new();
    for op in history {
        if let What::Leased { id, key, fencing_token, lease_ms, left_ms, kept, .. } = &op.what {
            let hold = Hold {
                id,
                key: key.as_deref(),
                fencing_token: *fencing_token,
                granted: op.span,
                alive_until_us: until(op.span.begin_us, *left_ms).saturating_sub(CLOCK_SLACK_US),
                over_from_us: (!kept).then(|| until(op.span.end_us, *lease_ms) + CLOCK_SLACK_US),
            };
            // The same token given out twice stays visible as two leases.
            twice.extend(holds.insert((id, *fencing_token), hold));
        }
    }
    let mut by_time: Vec<&Op> = history.iter().collect();
    by_time.sort_by_key(|op| op.span.begin_us);
    for op in &by_time {
        if let What::Extended { id, fencing_token, lease_ms, ok: true } = &op.what
            && let Some(hold) = holds.get_mut(&(id.as_str(), *fencing_token))
        {
            hold.alive_until_us = until(op.span.begin_us, *lease_ms).saturating_sub(CLOCK_SLACK_US);
            hold.over_from_us = Some(until(op.span.end_us, *lease_ms) + CLOCK_SLACK_US);
        }
    }
    let mut changed: HashMap<&str, Vec<Span>> = HashMap::new();
    for op in by_time {
        match &op.what {
            What::Ended { id, fencing_token, end } if *end != End::Lost => {
                if let Some(hold) = holds.get_mut(&(id.as_str(), *fencing_token)) {
                    hold.alive_until_us = hold.alive_until_us.min(op.span.begin_us);
                    if *end != End::Unknown {
                        hold.over_from_us = hold.over_from_us.map(|over| over.min(op.span.end_us));
                    }
                }
            }
            // Only a Cancel ends a lease, but the other changes are not worth the distinction.
            What::Changed { id, .. } => changed.entry(id).or_default().push(op.span),
            _ => {}
        }
    }
    let mut holds: Vec<Hold> = holds.into_values().chain(twice).collect();
    for hold in &mut holds {
        let after = changed.get(hold.id).into_iter().flatten().find(|span| span.end_us >= hold.granted.begin_us);
        if let Some(span) = after {
            hold.alive_until_us = hold.alive_until_us.min(span.begin_us);
        }
    }
    holds
}

/// Leases of one message or key, in the order of their fencing tokens.
fn check_group(name: &str, group: &[&Hold], found: &mut Vec<String>) {
    let mut longest: Option<&Hold> = None;
    let mut latest: Option<&Hold> = None;
    for pair in group.windows(2) {
        if pair[0].fencing_token == pair[1].fencing_token {
            found.push(format!("{name}: fencing token {} was given twice", pair[0].fencing_token));
        }
    }
    for hold in group {
        if let Some(before) = longest
            && before.alive_until_us >= hold.granted.end_us
        {
            found.push(format!(
                "{name}: leased with fencing token {} by {} µs, while fencing token {} lived until {} µs at least",
                hold.fencing_token, hold.granted.end_us, before.fencing_token, before.alive_until_us
            ));
        }
        if let Some(before) = latest
            && hold.granted.before(before.granted)
        {
            found.push(format!(
                "{name}: fencing token {} was given after fencing token {}",
                before.fencing_token, hold.fencing_token
            ));
        }
        if longest.is_none_or(|longest| longest.alive_until_us < hold.alive_until_us) {
            longest = Some(hold);
        }
        if latest.is_none_or(|latest| latest.granted.begin_us < hold.granted.begin_us) {
            latest = Some(hold);
        }
    }
}

/// No call ends or extends a lease that is over, and no answer says that a live lease is lost.
fn check_ends(history: &[Op], holds: &[Hold], late_ms: u64, found: &mut Vec<String>) {
    let by_fencing_token: HashMap<(&str, u64), &Hold> =
        holds.iter().map(|hold| ((hold.id, hold.fencing_token), hold)).collect();
    let mut by_id: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        by_id.entry(hold.id).or_default().push(hold);
    }
    for Op { span, what } in history {
        let (id, fencing_token, accepted) = match what {
            What::Ended { id, fencing_token, end: End::To(..) }
            | What::Extended { id, fencing_token, ok: true, .. } => (id.as_str(), *fencing_token, true),
            What::Ended { id, fencing_token, end: End::Lost } | What::Extended { id, fencing_token, ok: false, .. } => {
                (id.as_str(), *fencing_token, false)
            }
            _ => continue,
        };
        let Some(hold) = by_fencing_token.get(&(id, fencing_token)) else {
            found.push(format!(
                "message {id}: an answer about fencing token {fencing_token}, which no caller was granted"
            ));
            continue;
        };
        if !accepted {
            if span.end_us <= hold.alive_until_us {
                let alive_us = hold.alive_until_us;
                found.push(format!(
                    "message {id}: fencing token {fencing_token} was called lost, but lived until {alive_us} µs"
                ));
            }
            continue;
        }
        let newer = by_id[id].iter().find(|other| other.fencing_token > fencing_token && other.granted.before(*span));
        if let Some(newer) = newer {
            found.push(format!(
                "message {id}: fencing token {fencing_token} acted after fencing token {} was given out",
                newer.fencing_token
            ));
        }
        let is_end = matches!(what, What::Ended { .. });
        if is_end && hold.over_from_us.is_some_and(|over_us| until(over_us, late_ms) < span.begin_us) {
            found.push(format!(
                "message {id}: fencing token {fencing_token} acted at {} µs, when it was over",
                span.begin_us
            ));
        }
    }
}

/// A queue whose pause was acknowledged grants no lease, through any server, until it is resumed.
fn check_pauses(history: &[Op], found: &mut Vec<String>) {
    let spans = |wanted: fn(&What) -> bool| {
        let mut spans: Vec<Span> = history.iter().filter(|op| wanted(&op.what)).map(|op| op.span).collect();
        spans.sort_by_key(|span| span.begin_us);
        spans
    };
    let resumes = spans(|what| matches!(what, What::Resumed));
    for pause in spans(|what| matches!(what, What::Paused)) {
        let resumed_us = resumes.iter().map(|span| span.begin_us).find(|at| *at > pause.end_us).unwrap_or(u64::MAX);
        for op in history {
            if let What::Leased { id, .. } = &op.what
                && pause.before(op.span)
                && op.span.end_us < resumed_us
            {
                found.push(format!("message {id}: leased while the queue was paused, {:?}", op.span));
            }
        }
    }
}

fn until(from_us: u64, lease_ms: u64) -> u64 {
    from_us + lease_ms * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_client::State;

    fn op(begin_ms: u64, end_ms: u64, what: What) -> Op {
        Op { span: Span { begin_us: begin_ms * 1_000, end_us: end_ms * 1_000 }, what }
    }

    /// A lease of a second.
    fn leased(begin_ms: u64, end_ms: u64, id: &str, key: &str, fencing_token: u64) -> Op {
        let (id, key) = (id.to_owned(), (!key.is_empty()).then(|| key.to_owned()));
        op(
            begin_ms,
            end_ms,
            What::Leased { id, key, fencing_token, lease_ms: 1_000, left_ms: 1_000, version: 1, kept: false },
        )
    }

    fn ended(begin_ms: u64, end_ms: u64, id: &str, fencing_token: u64, end: End) -> Op {
        op(begin_ms, end_ms, What::Ended { id: id.to_owned(), fencing_token, end })
    }

    fn extended(begin_ms: u64, end_ms: u64, id: &str, fencing_token: u64, lease_ms: u64, ok: bool) -> Op {
        op(begin_ms, end_ms, What::Extended { id: id.to_owned(), fencing_token, lease_ms, ok })
    }

    const COMPLETED: End = End::To(State::Completed, 3);

    /// Every history in which something is wrong is found out, in these words.
    #[test]
    fn bad_histories_are_caught() {
        let lease = leased(0, 10, "a", "", 1);
        let canceled = |begin_ms, end_ms| {
            op(begin_ms, end_ms, What::Changed { id: "a".to_owned(), state: State::Canceled, version: 3 })
        };
        for (words, history) in [
            ("while fencing token 1 lived", vec![lease.clone(), leased(500, 600, "a", "", 2)]),
            ("while fencing token 1 lived", vec![leased(0, 10, "a", "k", 1), leased(500, 600, "b", "k", 2)]),
            // An extension makes it longer, and so does the first of two leases that ends last.
            (
                "while fencing token 1 lived",
                vec![lease.clone(), extended(900, 910, "a", 1, 1_000, true), leased(1_500, 1_600, "a", "", 2)],
            ),
            (
                "while fencing token 1 lived",
                vec![
                    leased(0, 10, "a", "k", 1),
                    extended(100, 110, "a", 1, 9_000, true),
                    leased(2_000, 2_010, "b", "k", 2),
                    ended(2_020, 2_030, "b", 2, COMPLETED),
                    leased(3_000, 3_010, "c", "k", 3),
                ],
            ),
            ("was given twice", vec![lease.clone(), leased(1_500, 1_510, "a", "", 1)]),
            ("was given after fencing token", vec![leased(0, 10, "a", "", 2), leased(1_500, 1_510, "a", "", 1)]),
            (
                "acted after fencing token 2",
                vec![lease.clone(), leased(1_100, 1_110, "a", "", 2), ended(1_120, 1_130, "a", 1, COMPLETED)],
            ),
            ("when it was over", vec![lease.clone(), ended(1_020, 1_030, "a", 1, COMPLETED)]),
            ("was called lost", vec![lease.clone(), ended(500, 510, "a", 1, End::Lost)]),
            ("was called lost", vec![lease.clone(), extended(500, 510, "a", 1, 1_000, false)]),
            ("which no caller was granted", vec![lease.clone(), ended(500, 510, "a", 7, COMPLETED)]),
            ("was called lost", vec![lease.clone(), ended(500, 510, "a", 1, End::Lost), canceled(520, 530)]),
            (
                "while the queue was paused",
                vec![op(0, 10, What::Paused), leased(20, 30, "a", "", 1), op(40, 50, What::Resumed)],
            ),
        ] {
            let found = check(&history, 0);
            assert!(found.iter().any(|violation| violation.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn good_histories_pass() {
        let lease = leased(0, 10, "a", "k", 1);
        let canceled = op(500, 510, What::Changed { id: "a".to_owned(), state: State::Canceled, version: 3 });
        for history in [
            // After its end by a call, by time, by an operator, or perhaps; and the answer may be old news.
            vec![lease.clone(), ended(20, 40, "a", 1, COMPLETED), leased(25, 30, "b", "k", 2)],
            vec![lease.clone(), ended(20, 40, "a", 1, End::Unknown), leased(25, 30, "b", "k", 2)],
            vec![lease.clone(), leased(900, 1_000, "b", "k", 2), ended(1_200, 1_210, "a", 1, End::Lost)],
            vec![lease.clone(), canceled.clone(), leased(505, 509, "b", "k", 2), ended(600, 610, "a", 1, End::Lost)],
            // A shorter lease by extension; two that cross; a lease just before a pause.
            vec![lease.clone(), extended(20, 30, "a", 1, 100, true), leased(125, 130, "b", "k", 2)],
            vec![leased(0, 10, "a", "", 2), leased(5, 15, "b", "", 1), ended(20, 30, "a", 2, COMPLETED)],
            vec![op(0, 10, What::Paused), leased(9, 30, "a", "", 1), op(40, 50, What::Resumed)],
            vec![op(0, 10, What::Paused), op(20, 30, What::Resumed), leased(25, 40, "a", "", 1)],
        ] {
            assert_eq!(check(&history, 0), Vec::<String>::new());
        }
        // It had waited in a server: its own times say what was left of it.
        let mut waited = leased(0, 10, "a", "", 1);
        if let What::Leased { left_ms, .. } = &mut waited.what {
            *left_ms = 400;
        }
        assert_eq!(check(&[waited, leased(405, 410, "a", "", 2)], 0), Vec::<String>::new());
        let late = [leased(0, 10, "a", "", 1), ended(1_060, 1_070, "a", 1, COMPLETED)];
        assert_eq!(check(&late, 50), Vec::<String>::new());
        assert_ne!(check(&late, 40), Vec::<String>::new());
    }
}
