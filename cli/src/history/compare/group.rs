//! Queues that are listed together and wait for the watermark together.

use super::again::{self, Again};
use super::difference::Difference;
use super::message_view::{MessageView, digest};
use super::names::Names;
use super::progress::Progress;
use super::requests::{AT_ONCE, PAGE, Suspect, caught_up};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use tallystone_client::{DepthQuery, Error, Loss, Queues, Search, State};

/// A group takes further queues until it has this many messages. It bounds the memory: a digest and an id for each.
const MESSAGES: usize = 1_000_000;
/// The same in queues: the longer it takes to list them, the more messages change meanwhile.
const QUEUES: usize = 2_000;

/// Queues as they were listed.
pub(crate) struct Group {
    queues: Vec<Listed>,
}

/// A queue, with a digest of each of its messages.
struct Listed {
    queue: String,
    messages: HashMap<String, u64>,
    losses: Vec<Loss>,
}

/// What a queue's index shows.
struct Indexed {
    /// Messages that differ, or are in one of the two only.
    suspects: Vec<String>,
    /// The messages in the index.
    ids: Vec<String>,
}

/// The queues of a group, compared with their history.
pub(crate) struct Compared {
    /// In order: each queue with the number of its messages.
    pub(crate) queues: Vec<(String, u64)>,
    /// Messages that differ.
    pub(crate) differences: Vec<(Suspect, Difference)>,
    /// Messages that changed during each comparison: whether they differ is not known.
    pub(crate) undecided: Vec<Suspect>,
    /// The messages in the index, if they were requested.
    pub(crate) indexed: Vec<Suspect>,
    /// The losses of the queues from before they were listed: they explain no difference that is not in `differences`
    /// or `undecided`.
    pub(crate) losses: Vec<Loss>,
}

impl Group {
    /// Lists the next queues.
    pub(crate) async fn list(names: &mut Names, session: &Session, progress: &mut Progress) -> Result<Group, CliError> {
        let mut group = Group { queues: Vec::new() };
        let mut messages = 0;
        while messages < MESSAGES && group.queues.len() < QUEUES {
            let next = names.take(AT_ONCE);
            if next.is_empty() {
                break;
            }
            let must_exist = names.are_given;
            let listed = futures::stream::iter(next).map(|queue| list(queue, must_exist, session));
            let mut listed = listed.buffered(AT_ONCE);
            while let Some(queue) = listed.try_next().await? {
                messages += queue.messages.len();
                progress.listed(queue.messages.len());
                group.queues.push(queue);
            }
        }
        Ok(group)
    }

    /// Compares the queues with their history.
    pub(crate) async fn compare(
        mut self,
        with_indexed: bool,
        session: &Session,
        progress: &mut Progress,
    ) -> Result<Compared, CliError> {
        let count = |listed: &Listed| (listed.queue.clone(), listed.messages.len() as u64);
        let queues: Vec<(String, u64)> = self.queues.iter().map(count).collect();
        let losses = self.queues.iter_mut().flat_map(|listed| std::mem::take(&mut listed.losses)).collect();
        caught_up(session).await?;
        let (mut suspects, mut indexed): (Vec<Suspect>, Vec<Suspect>) = (Vec::new(), Vec::new());
        let comparisons =
            self.queues.into_iter().enumerate().map(|(at, listed)| async move {
                Ok::<_, CliError>((at, compare(listed, with_indexed, session).await?))
            });
        let mut comparisons = futures::stream::iter(comparisons).buffer_unordered(AT_ONCE);
        while let Some((at, found)) = comparisons.try_next().await? {
            progress.compared();
            suspects.extend(found.suspects.into_iter().map(|id| (at, id)));
            indexed.extend(found.ids.into_iter().map(|id| (at, id)));
        }
        drop(comparisons);
        let Again { differences, undecided } = again::compare(&queues, suspects, session, progress).await?;
        Ok(Compared { queues, differences, undecided, indexed, losses })
    }
}

/// Lists the messages of a queue; a deleted queue has none. A queue that must exist may also be in history only.
async fn list(queue: String, must_exist: bool, session: &Session) -> Result<Listed, CliError> {
    let history = session.client.indexed_depth(DepthQuery::of(Queues::One(queue.clone()))).await;
    let history = history.map_err(|error| cli_error(&error))?;
    let may_be_deleted = !must_exist || history.depth.total() > 0;
    let mut listed = Listed { queue, messages: HashMap::new(), losses: history.losses };
    for state in State::ALL {
        let mut page_token = String::new();
        loop {
            let page = session.client.list_messages(&listed.queue, state, PAGE, &page_token).await;
            if may_be_deleted && page.as_ref().is_err_and(is_deleted) {
                listed.messages.clear();
                return Ok(listed);
            }
            let page = session.call(&listed.queue, std::future::ready(page)).await?;
            let digests =
                page.items.iter().map(|message| (message.id.clone(), digest(&MessageView::by_queue(message))));
            listed.messages.extend(digests);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
    }
    Ok(listed)
}

fn is_deleted(error: &Error) -> bool {
    error.refused().is_some_and(|refused| refused.reason == "QUEUE_NOT_FOUND")
}

/// Compares a queue with what its index has now. `ids` stays empty without `with_indexed`.
async fn compare(listed: Listed, with_indexed: bool, session: &Session) -> Result<Indexed, CliError> {
    let Listed { queue, messages: mut live, losses: _ } = listed;
    let mut compared = Indexed { suspects: Vec::new(), ids: Vec::new() };
    let mut search = Search { queue, page_size: PAGE, ..Search::default() };
    loop {
        let found = session.client.search_messages(search.clone()).await.map_err(|error| cli_error(&error))?;
        for message in found.messages {
            if live.remove(&message.id) != Some(digest(&MessageView::by_index(&message))) {
                compared.suspects.push(message.id.clone());
            }
            if with_indexed {
                compared.ids.push(message.id);
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
