//! `tallystone msg trace [QUEUE] ID`

use crate::connection::{Session, cli_error};
use crate::duration::{format_ms, format_time};
use crate::error::CliError;
use crate::history::{HistoryFlags, UNCERTAIN, behind};
use crate::terminal::colored;
use crate::text::{pairs_text, visible, visible_bytes, visible_lines};
use clap::Args;
use std::fmt::Write;
use tallystone_client::{Gap, IndexedMessage, Search, State, Trace, TracedTransition};

/// Transitions of one page.
const PAGE: u32 = 1_000;

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// The queue and the message's id; without a queue, all queues are searched for the id
    #[arg(value_name = "[QUEUE] ID", num_args = 1..=2, required = true)]
    message: Vec<String>,
    /// Show only the message with this sequence, if several messages had the id
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    sequence: u64,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
}

pub(crate) async fn run(args: TraceArgs, session: &Session) -> Result<(), CliError> {
    let (queues, id) = match args.message.as_slice() {
        [queue, id] => (vec![queue.clone()], id),
        [id] => (queues_of(id, session).await?, id),
        _ => unreachable!("clap counts them"),
    };
    let mut found = false;
    for queue in queues {
        found |= trace(&queue, id, args.sequence, session).await?;
    }
    match found {
        true => Ok(()),
        false => Err(CliError::refused(format!("history has no message '{id}'")).hint(
            "a message that was just enqueued may not be indexed yet; `tallystone msg search` lists indexed messages",
        )),
    }
}

/// The queues in which history has the id.
async fn queues_of(id: &str, session: &Session) -> Result<Vec<String>, CliError> {
    let search = Search { id: id.to_owned(), include_gone: true, page_size: 100, ..Search::default() };
    let found = session.client.search_messages(search).await.map_err(|error| cli_error(&error))?;
    let mut queues: Vec<String> = found.messages.into_iter().map(|message| message.queue).collect();
    queues.sort();
    queues.dedup();
    Ok(queues)
}

/// Shows a message's transitions, page by page. Returns false if there are none.
async fn trace(queue: &str, id: &str, sequence: u64, session: &Session) -> Result<bool, CliError> {
    let (mut page_token, mut before) = (String::new(), None);
    let mut found = false;
    loop {
        let trace = session.client.trace_message(queue, id, sequence, PAGE, &page_token).await;
        let trace = trace.map_err(|error| cli_error(&error))?;
        if trace.transitions.is_empty() && trace.gaps.is_empty() {
            return Ok(found);
        }
        if session.output.json {
            session.output.many(&trace.transitions, |_| String::new())?;
        } else {
            session.output.line(drawn(&trace, &mut before, queue, id).trim_end())?;
        }
        found = true;
        page_token = trace.next_page_token;
        if page_token.is_empty() {
            session.output.remark(&behind(&trace.watermark))?;
            if trace.message.is_some_and(|message| message.uncertain) {
                session.output.remark(UNCERTAIN)?;
            }
            return Ok(true);
        }
    }
}

/// A page of the timeline. `before` is the last transition of the previous page.
pub(crate) fn drawn(trace: &Trace, before: &mut Option<TracedTransition>, queue: &str, id: &str) -> String {
    let mut text = String::new();
    for transition in &trace.transitions {
        let same = before.as_ref().filter(|before| before.sequence == transition.sequence);
        if same.is_none() {
            let message = trace.message.as_ref().filter(|message| message.sequence == transition.sequence);
            text += &headline(queue, id, transition.priority, transition.sequence, message);
        } else {
            let _ = writeln!(text, "{:26}│   {}", "", spent(transition));
        }
        if let Some(gap) = gap_before(&trace.gaps, transition) {
            let _ = writeln!(text, "{:26}╎   {gap}", "");
        }
        let mark = if transition.to.is_none() || transition.to.is_some_and(is_terminal) { '●' } else { '○' };
        let state = transition.to.map_or("gone", State::name);
        let state = colored(&format!("{state:<10}"));
        let _ = writeln!(text, "{}  {mark} {state} {}", format_time(transition.at_ms), what(transition, same));
        *before = Some(transition.clone());
    }
    let is_last = |gap: &&Gap| !trace.transitions.iter().any(|transition| is_before(gap, transition));
    for gap in trace.gaps.iter().filter(is_last) {
        if before.as_ref().is_none_or(|before| before.sequence != gap.sequence) {
            let message = trace.message.as_ref().filter(|message| message.sequence == gap.sequence);
            let priority = message.map_or(0, |message| message.priority);
            text += &headline(queue, id, priority, gap.sequence, message);
        }
        let _ = writeln!(text, "{:26}╎   {}", "", missing(gap));
    }
    text
}

fn headline(queue: &str, id: &str, priority: i64, sequence: u64, message: Option<&IndexedMessage>) -> String {
    let pairs = message.map_or_else(String::new, |message| pairs_text(&message.metadata));
    let pairs = if pairs.is_empty() { pairs } else { format!("  {pairs}") };
    let mut text =
        format!("{} in {}  (priority {priority}, sequence {sequence}){pairs}\n", visible(id), visible(queue));
    if let Some(payload) = message.and_then(|message| message.payload.as_ref()) {
        let _ = match std::str::from_utf8(payload) {
            Ok(payload) => writeln!(text, "  {}", visible_lines(payload, 2)),
            Err(_) => writeln!(text, "  {} bytes of binary payload", payload.len()),
        };
    }
    text
}

fn is_terminal(state: State) -> bool {
    matches!(state, State::Completed | State::Canceled | State::Errored)
}

/// How long the message was in the state that this transition left.
fn spent(transition: &TracedTransition) -> String {
    let time = format_ms(transition.spent_ms);
    match transition.from {
        Some(State::Running) => format!("ran {time}"),
        Some(State::Pending) => format!("waited {time}"),
        Some(State::Invisible) => format!("invisible for {time}"),
        Some(State::Completed) => format!("kept {time} after completion"),
        Some(State::Canceled) => format!("kept {time} after cancellation"),
        Some(State::Errored) => format!("kept {time} after its last attempt"),
        None => String::new(),
    }
}

/// The cause of a transition, with attempt, worker, fencing token, reason and time limit. `before` is the last known
/// transition of the message.
fn what(transition: &TracedTransition, before: Option<&TracedTransition>) -> String {
    let mut text = visible(&transition.by.replace('_', " "));
    if matches!(transition.by.as_str(), "dequeue" | "complete" | "release" | "extend_lease" | "lease_expired") {
        if let Some(attempt) = attempt(transition, before) {
            let _ = write!(text, ", attempt {attempt}");
        }
        if !transition.worker.is_empty() {
            let _ = write!(text, " by {}", visible(&transition.worker));
        }
        let _ = write!(text, " (fencing token {})", transition.fencing_token);
    }
    if !transition.reason.is_empty() && transition.reason != transition.by.replace('_', " ") {
        let _ = write!(text, ": {}", visible(&transition.reason));
    }
    if !transition.result.is_empty() {
        let _ = write!(text, ", result: {}", visible_bytes(&transition.result));
    }
    match transition.to {
        Some(State::Invisible) => _ = write!(text, ", visible at {}", format_time(transition.due_ms)),
        Some(State::Running) => _ = write!(text, ", lease until {}", format_time(transition.due_ms)),
        _ => {}
    }
    text
}

/// The attempt to which the transition belongs. The end of a lease can change the number of attempts: the end of a coalesced run
/// sets it to 0, and a lease that no worker got was none. So the transition before has it; `None`: that one is missing.
fn attempt(transition: &TracedTransition, before: Option<&TracedTransition>) -> Option<u32> {
    let ends_run = transition.from == Some(State::Running) && transition.to != Some(State::Running);
    let may_differ = transition.attempt == 0 || transition.to == Some(State::Pending);
    match before.filter(|before| before.version + 1 == transition.version) {
        Some(before) if ends_run => Some(before.attempt),
        None if ends_run && may_differ => None,
        _ => Some(transition.attempt),
    }
}

/// The versions that are missing just before this transition.
fn gap_before(gaps: &[Gap], transition: &TracedTransition) -> Option<String> {
    gaps.iter().find(|gap| is_before(gap, transition)).map(missing)
}

fn is_before(gap: &Gap, transition: &TracedTransition) -> bool {
    gap.sequence == transition.sequence && gap.last_version + 1 == transition.version
}

fn missing(gap: &Gap) -> String {
    match gap.first_version == gap.last_version {
        true => format!("version {} is missing: older than the retention, or lost", gap.first_version),
        false => format!(
            "versions {} to {} are missing: older than the retention, or lost",
            gap.first_version, gap.last_version
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(version: u32, from: Option<State>, to: Option<State>, by: &str) -> TracedTransition {
        TracedTransition {
            version,
            from,
            to,
            at_ms: 1_357_035_300_000 + u64::from(version) * 1_500,
            worker: if version == 1 { String::new() } else { "hangar-1".to_owned() },
            reason: if by == "lease_expired" { "lease expired".to_owned() } else { String::new() },
            by: by.to_owned(),
            spent_ms: 1_500,
            attempt: 1,
            fencing_token: 7,
            due_ms: 1_357_035_330_000,
            priority: 5,
            sequence: 3,
            result: Default::default(),
        }
    }

    fn page(transitions: Vec<TracedTransition>, gaps: Vec<Gap>) -> Trace {
        let (next_page_token, watermark) = (String::new(), Default::default());
        Trace { transitions, gaps, message: None, next_page_token, watermark }
    }

    #[test]
    fn a_timeline_is_drawn_from_top_to_bottom() {
        let transitions = vec![
            transition(1, None, Some(State::Pending), "enqueue"),
            transition(2, Some(State::Pending), Some(State::Running), "dequeue"),
            transition(4, Some(State::Pending), Some(State::Canceled), "cancel"),
        ];
        let trace = page(transitions, vec![Gap { sequence: 3, first_version: 3, last_version: 3 }]);
        let text = drawn(&trace, &mut None, "flights", "UA1");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "UA1 in flights  (priority 5, sequence 3)");
        assert_eq!(lines[1], "2013-01-01T10:15:01.500Z  ○ pending    enqueue");
        assert_eq!(lines[2], "                          │   waited 1s 500ms");
        assert!(
            lines[3].contains("○ running    dequeue, attempt 1 by hangar-1 (fencing token 7), lease until 2013"),
            "{}",
            lines[3]
        );
        assert!(lines[5].contains("version 3 is missing"), "{text}");
        assert!(lines[6].contains("● canceled   cancel"), "{text}");
    }

    #[test]
    fn q23_a_completion_shows_its_result() {
        let completed = transition(3, Some(State::Running), Some(State::Completed), "complete");
        let line = |result: &'static [u8]| {
            let transitions = vec![TracedTransition { result: result.into(), ..completed.clone() }];
            drawn(&page(transitions, vec![]), &mut None, "flights", "UA1")
        };
        assert!(
            line(b"gate \x1b 7").contains("(fencing token 7), result: gate \\u{1b} 7\n"),
            "{}",
            line(b"gate \x1b 7")
        );
        assert!(line(b"\xff").contains("result: 1 bytes of binary data; --json shows them\n"), "{}", line(b"\xff"));
        assert!(!line(b"").contains("result"), "{}", line(b""));
    }

    #[test]
    fn q12_the_end_of_a_coalesced_run_names_its_attempt() {
        let (pending, running) = (Some(State::Pending), Some(State::Running));
        for by in ["complete", "release", "lease_expired"] {
            let attempt_of = |attempt, transition| TracedTransition { attempt, ..transition };
            let transitions = vec![
                attempt_of(2, transition(4, pending, running, "dequeue")),
                attempt_of(2, transition(5, running, running, "coalesce")),
                attempt_of(0, transition(6, running, pending, by)),
                attempt_of(1, transition(7, pending, running, "dequeue")),
            ];
            let mut trace = page(transitions, vec![]);
            let text = drawn(&trace, &mut None, "flights", "UA1");
            let line = text.lines().find(|line| line.contains(&by.replace('_', " "))).expect("its line");
            assert!(line.contains(", attempt 2 by hangar-1"), "{line}");
            // Without the transition before, the attempt is not known.
            trace.transitions.remove(1);
            let text = drawn(&trace, &mut None, "flights", "UA1");
            assert!(!text.contains("attempt 0"), "{text}");
        }
    }

    #[test]
    fn q22_the_release_of_a_lease_that_no_worker_got_names_its_attempt() {
        let (pending, running) = (Some(State::Pending), Some(State::Running));
        let attempt_of = |attempt, transition| TracedTransition { attempt, ..transition };
        let transitions = vec![
            attempt_of(2, transition(4, pending, running, "dequeue")),
            attempt_of(1, transition(5, running, pending, "release")),
        ];
        let mut trace = page(transitions, vec![]);
        let text = drawn(&trace, &mut None, "flights", "UA1");
        assert!(text.contains("release, attempt 2 by") && !text.contains("attempt 1"), "{text}");
        trace.transitions.remove(0);
        let text = drawn(&trace, &mut None, "flights", "UA1");
        assert!(text.contains("release by"), "{text}");
        // Other ends of a run have the number of their attempt.
        trace.transitions = vec![attempt_of(1, transition(5, running, Some(State::Invisible), "release"))];
        let text = drawn(&trace, &mut None, "flights", "UA1");
        assert!(text.contains("release, attempt 1 by"), "{text}");
    }
}
