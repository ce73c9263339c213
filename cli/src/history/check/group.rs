//! Queues that are listed together and wait for the watermark together.

use super::progress::Progress;
use super::report::Report;
use super::requests::{AT_ONCE, PAGE, Suspect, caught_up};
use super::{again, traces};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use crate::history::message_view::{MessageView, digest};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use tallystone_client::{Search, State};

/// A group takes further queues until it has this many messages. It bounds the memory: a digest and an id for each.
const MESSAGES: usize = 1_000_000;
/// The same in queues: the longer it takes to list them, the more messages change meanwhile.
const QUEUES: usize = 2_000;

/// Queues as they were listed.
pub(super) struct Group {
    queues: Vec<Listed>,
}

/// A queue, with a digest of each of its messages.
struct Listed {
    queue: String,
    messages: HashMap<String, u64>,
}

/// What a queue's index shows.
struct Compared {
    /// Messages that differ, or are in one of the two only.
    suspects: Vec<String>,
    /// The messages in the index.
    indexed: Vec<String>,
}

impl Group {
    /// Lists the next queues.
    pub(super) async fn list(
        names: &mut impl Iterator<Item = String>,
        session: &Session,
        progress: &mut Progress,
    ) -> Result<Group, CliError> {
        let mut group = Group { queues: Vec::new() };
        let mut messages = 0;
        while messages < MESSAGES && group.queues.len() < QUEUES {
            let next: Vec<String> = names.by_ref().take(AT_ONCE).collect();
            if next.is_empty() {
                break;
            }
            let mut listed = futures::stream::iter(next).map(|queue| list(queue, session)).buffered(AT_ONCE);
            while let Some(queue) = listed.try_next().await? {
                messages += queue.messages.len();
                progress.listed(queue.messages.len());
                group.queues.push(queue);
            }
        }
        Ok(group)
    }

    /// Compares the queues with their history. The reports are in the order of the queues.
    pub(super) async fn check(
        self,
        with_traces: bool,
        session: &Session,
        progress: &mut Progress,
    ) -> Result<Vec<Report>, CliError> {
        let report = |listed: &Listed| Report::new(listed.queue.clone(), listed.messages.len() as u64);
        let mut reports: Vec<Report> = self.queues.iter().map(report).collect();
        caught_up(session).await?;
        let (mut suspects, mut indexed): (Vec<Suspect>, Vec<Suspect>) = (Vec::new(), Vec::new());
        let comparisons =
            self.queues.into_iter().enumerate().map(|(at, listed)| async move {
                Ok::<_, CliError>((at, compare(listed, with_traces, session).await?))
            });
        let mut comparisons = futures::stream::iter(comparisons).buffer_unordered(AT_ONCE);
        while let Some((at, compared)) = comparisons.try_next().await? {
            progress.compared();
            suspects.extend(compared.suspects.into_iter().map(|id| (at, id)));
            indexed.extend(compared.indexed.into_iter().map(|id| (at, id)));
        }
        drop(comparisons);
        let queues: Vec<String> = reports.iter().map(|report| report.queue.clone()).collect();
        let mut differences = again::compare(&queues, suspects, session, progress).await?;
        differences.extend(traces::check(&queues, indexed, session, progress).await?);
        for ((at, id), difference) in differences {
            reports[at].add(id, difference);
        }
        Ok(reports)
    }
}

async fn list(queue: String, session: &Session) -> Result<Listed, CliError> {
    let mut messages = HashMap::new();
    for state in State::ALL {
        let mut page_token = String::new();
        loop {
            let page = session.client.list_messages(&queue, state, PAGE, &page_token);
            let page = session.call(&queue, page).await?;
            messages
                .extend(page.items.iter().map(|message| (message.id.clone(), digest(&MessageView::by_queue(message)))));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
    }
    Ok(Listed { queue, messages })
}

/// Compares a queue with what its index has now. `indexed` stays empty without `with_traces`.
async fn compare(listed: Listed, with_traces: bool, session: &Session) -> Result<Compared, CliError> {
    let Listed { queue, messages: mut live } = listed;
    let mut compared = Compared { suspects: Vec::new(), indexed: Vec::new() };
    let mut search = Search { queue, page_size: PAGE, ..Search::default() };
    loop {
        let found = session.client.search_messages(search.clone()).await.map_err(|error| cli_error(&error))?;
        for message in found.messages {
            if live.remove(&message.id) != Some(digest(&MessageView::by_index(&message))) {
                compared.suspects.push(message.id.clone());
            }
            if with_traces {
                compared.indexed.push(message.id);
            }
        }
        search.page_token = found.next_page_token;
        if search.page_token.is_empty() {
            break;
        }
    }
    compared.suspects.extend(live.into_keys());
    Ok(compared)
}
