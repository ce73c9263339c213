//! `tallystone history check [QUEUE…]`: compares each queue with its history.
//!
//! A queue at work cannot be compared at one moment. The check lists the queue, waits until the watermark has passed that
//! moment, and lists the index. Messages that differ are compared again: a difference counts only if the message did not
//! change meanwhile.

use super::message_view::{MessageView, digest};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_client::{IndexedMessage, Message, Search, State};

const PAGE: u32 = 1_000;
/// How long to wait for the watermark.
const WAIT: Duration = Duration::from_secs(60);
/// Concurrent requests.
const AT_ONCE: usize = 16;
/// How often a message that keeps changing is compared again.
const TRIES: usize = 5;
/// Differences that are listed; further ones are only counted.
const NAMED: usize = 100_000;

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The queues to compare [default: all]
    queues: Vec<String>,
    /// Also check every message's transitions: no version may be missing or occur twice
    #[arg(long)]
    traces: bool,
}

#[derive(Serialize)]
struct Report {
    queue: String,
    compared: u64,
    differences: Vec<Difference>,
    more_differences: u64,
}

#[derive(Serialize)]
struct Difference {
    id: String,
    difference: String,
}

pub(crate) async fn run(args: CheckArgs, session: &Session) -> Result<(), CliError> {
    let mut names = args.queues;
    if names.is_empty() {
        names.extend(session.queues("").await?.into_iter().map(|summary| summary.queue.name));
    }
    let mut reports = Vec::new();
    for queue in names {
        reports.push(check(queue, args.traces, session).await?);
    }
    session.output.many(&reports, text)?;
    match reports.iter().map(|report| report.differences.len() as u64 + report.more_differences).sum::<u64>() {
        0 => Ok(()),
        1 => Err(CliError::refused("1 difference was found")),
        found => Err(CliError::refused(format!("{found} differences were found"))),
    }
}

async fn check(queue: String, traces: bool, session: &Session) -> Result<Report, CliError> {
    let mut live = HashMap::new();
    for state in State::ALL {
        let mut page_token = String::new();
        loop {
            let page = session.client.list_messages(&queue, state, PAGE, &page_token);
            let page = session.call(&queue, page).await?;
            live.extend(page.items.iter().map(|message| (message.id.clone(), digest(&MessageView::by_queue(message)))));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
    }
    caught_up(session).await?;
    let mut report = Report { queue, compared: live.len() as u64, differences: Vec::new(), more_differences: 0 };
    let mut suspects = Vec::new();
    let mut search = Search { queue: report.queue.clone(), page_size: PAGE, ..Search::default() };
    let mut all: Vec<String> = Vec::new();
    loop {
        let found = session.client.search_messages(search.clone()).await.map_err(|error| cli_error(&error))?;
        for message in &found.messages {
            if traces {
                all.push(message.id.clone());
            }
            if live.remove(&message.id) != Some(digest(&MessageView::by_index(message))) {
                suspects.push(message.id.clone());
            }
        }
        search.page_token = found.next_page_token;
        if search.page_token.is_empty() {
            break;
        }
    }
    suspects.extend(live.into_keys());
    for (id, difference) in compare_again(&report.queue, suspects, session).await? {
        report.add(id, difference);
    }
    let traces = futures::stream::iter(all).map(|id| {
        let queue = &report.queue;
        async move { Ok::<_, CliError>((incomplete_twice(queue, &id, session).await?, id)) }
    });
    let incomplete: Vec<(Option<String>, String)> = traces.buffer_unordered(AT_ONCE).try_collect().await?;
    for (difference, id) in incomplete {
        if let Some(difference) = difference {
            report.add(id, difference);
        }
    }
    Ok(report)
}

impl Report {
    fn add(&mut self, id: String, difference: String) {
        if self.differences.len() < NAMED {
            self.differences.push(Difference { id, difference });
        } else {
            self.more_differences += 1;
        }
    }
}

/// Waits until the index has all that has happened until now.
async fn caught_up(session: &Session) -> Result<(), CliError> {
    match session.client.history_caught_up(WAIT).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(CliError::unavailable(format!("the index has not caught up with the queue within {WAIT:?}"))
            .hint("are the relay and the indexer running? /metrics says how far behind they are")),
        Err(error) => Err(cli_error(&error)),
    }
}

/// Compares these messages until the queue returns the same before and after the index was read. A message that changed
/// in between is compared again in the next round.
async fn compare_again(
    queue: &str,
    mut suspects: Vec<String>,
    session: &Session,
) -> Result<Vec<(String, String)>, CliError> {
    let mut differences = Vec::new();
    for _ in 0..TRIES {
        if suspects.is_empty() {
            break;
        }
        let before = futures::stream::iter(std::mem::take(&mut suspects)).map(|id| async move {
            let view = message(queue, &id, session).await?.as_ref().map(MessageView::by_queue);
            Ok::<_, CliError>((id, view))
        });
        let before: Vec<(String, Option<MessageView>)> = before.buffer_unordered(AT_ONCE).try_collect().await?;
        caught_up(session).await?;
        let compared = futures::stream::iter(before).map(|(id, before)| async move {
            // Two: an earlier message of the id should be gone.
            let search = Search { queue: queue.to_owned(), id: id.clone(), page_size: 2, ..Search::default() };
            let found = session.client.search_messages(search).await.map_err(|error| cli_error(&error))?;
            let after = message(queue, &id, session).await?.as_ref().map(MessageView::by_queue);
            if before != after {
                return Ok((id, None));
            }
            Ok::<_, CliError>((id, Some(difference(before, &found.messages))))
        });
        let compared: Vec<(String, Option<Option<String>>)> = compared.buffer_unordered(AT_ONCE).try_collect().await?;
        for (id, verdict) in compared {
            match verdict {
                None => suspects.push(id),
                Some(Some(difference)) => differences.push((id, difference)),
                Some(None) => {}
            }
        }
    }
    Ok(differences)
}

fn difference(queue: Option<MessageView>, index: &[IndexedMessage]) -> Option<String> {
    match (queue, index) {
        (None, []) => None,
        (Some(_), []) => Some("is in the queue, not in the index".to_owned()),
        (None, _) => Some("is in the index, not in the queue".to_owned()),
        (Some(queue), [only]) => queue.difference(&MessageView::by_index(only)),
        (Some(_), _) => {
            Some("is in the index more than once: an earlier message with this id was not removed there".to_owned())
        }
    }
}

/// Like [`incomplete`], and repeated if something is wrong: a message can be ahead of its transitions for a moment.
async fn incomplete_twice(queue: &str, id: &str, session: &Session) -> Result<Option<String>, CliError> {
    match incomplete(queue, id, session).await? {
        None => Ok(None),
        Some(_) => {
            caught_up(session).await?;
            incomplete(queue, id, session).await
        }
    }
}

/// A message as the queue has it; `None`: it is not there.
async fn message(queue: &str, id: &str, session: &Session) -> Result<Option<Message>, CliError> {
    match session.client.get_message(queue, id).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.refused().is_some_and(|refused| refused.reason == "MESSAGE_NOT_FOUND") => Ok(None),
        Err(error) => Err(cli_error(&error)),
    }
}

/// What is wrong with the trace of a message.
async fn incomplete(queue: &str, id: &str, session: &Session) -> Result<Option<String>, CliError> {
    let (mut page_token, mut last, mut state) = (String::new(), (0, 0), None);
    loop {
        let trace = session.client.trace_message(queue, id, 0, PAGE, &page_token).await;
        let trace = trace.map_err(|error| cli_error(&error))?;
        if let Some(gap) = trace.gaps.first() {
            let why = if gap.first_version == 1 { ": older than the retention, or lost" } else { "" };
            let (first, last) = (gap.first_version, gap.last_version);
            return Ok(Some(format!("versions {first} to {last} are not in its trace{why}")));
        }
        for transition in &trace.transitions {
            let expected = if transition.sequence == last.0 { last.1 + 1 } else { 1 };
            if transition.version != expected {
                return Ok(Some(format!("its trace has version {} where {expected} should be", transition.version)));
            }
            if transition.version > 1 && transition.from != state {
                return Ok(Some(format!(
                    "its trace does not follow from the previous version at version {}",
                    transition.version
                )));
            }
            last = (transition.sequence, transition.version);
            state = transition.to;
        }
        page_token = trace.next_page_token;
        if page_token.is_empty() {
            let version = trace.message.filter(|message| message.sequence == last.0 || last.0 == 0);
            let version = version.map_or(last.1, |message| message.version);
            return Ok((version > last.1).then(|| format!("its trace ends with version {} of {version}", last.1)));
        }
    }
}

fn text(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No queues.".to_owned();
    }
    let row = |report: &Report| {
        let verdict = match report.differences.len() as u64 + report.more_differences {
            0 => "no difference".to_owned(),
            found => format!("{found} differences"),
        };
        vec![report.queue.clone(), grouped(report.compared), verdict]
    };
    let mut text = table(&["queue", "#compared", "verdict"], reports.iter().map(row));
    for report in reports {
        for Difference { id, difference } in &report.differences {
            text += &format!("\n{} {id}: {difference}", report.queue);
        }
        if report.more_differences > 0 {
            text += &format!("\n{}: {} more", report.queue, report.more_differences);
        }
    }
    text
}
