//! What must be true when all is over, judged from what was acknowledged.

use crate::histories::history::{End, Op, What};
use crate::histories::{leases, versions};
use std::collections::BTreeMap;
use tallystone_client::State;

/// By how much leases may end late after a failover: twice the default of `clock_skew_max_ms`, where the clock of the primary before
/// was not measured. A measured difference has its round trips in it, so it may be large on a busy machine, but never more than this.
pub(crate) const LATE_MS: u64 = 20_000;

/// Every violation found. `late_ms`: by how much leases may end late. `final_fencing_tokens` are the tokens that the messages have at last.
pub(crate) fn judge(history: &[Op], late_ms: u64, final_fencing_tokens: &BTreeMap<String, u64>) -> Vec<String> {
    let mut found = [leases::check(history, late_ms), versions::check(history)].concat();
    let mut completions: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for op in history {
        match &op.what {
            What::Enqueued { id, .. } => drop(completions.entry(id).or_default()),
            What::Leased { id, fencing_token, .. } => {
                let newest = newest.entry(id).or_default();
                *newest = (*newest).max(*fencing_token);
            }
            What::Ended { id, fencing_token, end: End::To(State::Completed, _) } => {
                completions.entry(id).or_default().push(*fencing_token);
            }
            _ => {}
        }
    }
    for (id, fencing_tokens) in completions {
        match fencing_tokens.as_slice() {
            [] => found.push(format!("message {id}: accepted, and never completed")),
            [fencing_token] => {
                let (newest, last) = (newest.get(id), final_fencing_tokens.get(id));
                if newest != Some(fencing_token) || last != Some(fencing_token) {
                    found.push(format!(
                        "message {id}: completed with fencing token {fencing_token}, but {newest:?} is the newest given out, and {last:?} its last"
                    ));
                }
            }
            fencing_tokens => found.push(format!(
                "message {id}: completed {} times, with fencing tokens {fencing_tokens:?}",
                fencing_tokens.len()
            )),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histories::history::Span;

    fn op(begin_ms: u64, what: What) -> Op {
        Op { span: Span { begin_us: begin_ms * 1_000, end_us: begin_ms * 1_000 + 1_000 }, what }
    }

    fn enqueued() -> Op {
        op(0, What::Enqueued { id: "a".to_owned(), origin: String::new() })
    }

    fn leased(begin_ms: u64, fencing_token: u64, version: u32) -> Op {
        op(
            begin_ms,
            What::Leased {
                id: "a".to_owned(),
                key: None,
                fencing_token,
                lease_ms: 1_000,
                left_ms: 1_000,
                version,
                kept: false,
            },
        )
    }

    fn ended(begin_ms: u64, fencing_token: u64, end: End) -> Op {
        op(begin_ms, What::Ended { id: "a".to_owned(), fencing_token, end })
    }

    #[test]
    fn bad_histories_are_caught() {
        let completed = |version| End::To(State::Completed, version);
        for (words, last_fencing_token, history) in [
            ("never completed", 0, vec![enqueued()]),
            ("never completed", 1, vec![enqueued(), leased(10, 1, 2), ended(20, 1, End::Lost)]),
            (
                "completed 2 times",
                2,
                vec![
                    enqueued(),
                    leased(10, 1, 2),
                    ended(20, 1, completed(3)),
                    leased(1_100, 2, 4),
                    ended(1_200, 2, completed(5)),
                ],
            ),
            (
                "is the newest given out",
                2,
                vec![enqueued(), leased(10, 1, 2), leased(1_100, 2, 4), ended(500, 1, completed(5))],
            ),
            ("its last", 7, vec![enqueued(), leased(10, 1, 2), ended(20, 1, completed(3))]),
            ("when it was over", 1, vec![enqueued(), leased(10, 1, 2), ended(1_100, 1, completed(3))]),
        ] {
            let found = judge(&history, 0, &[("a".to_owned(), last_fencing_token)].into());
            assert!(found.iter().any(|violation| violation.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn good_histories_pass() {
        let end = End::To(State::Completed, 5);
        let history = [enqueued(), leased(10, 1, 2), leased(1_100, 2, 4), ended(1_200, 2, end)];
        assert_eq!(judge(&history, 0, &[("a".to_owned(), 2)].into()), Vec::<String>::new());
        // A release whose answer was lost leaves the message to the next.
        let history = [enqueued(), leased(10, 1, 2), ended(20, 1, End::Unknown), leased(30, 2, 4), ended(40, 2, end)];
        assert_eq!(judge(&history, 0, &[("a".to_owned(), 2)].into()), Vec::<String>::new());
    }
}
