//! The queues to compare: those of the queue's server, and those that only history still has messages of.

use super::requests::PAGE;
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use std::collections::BTreeSet;
use tallystone_client::{DepthQuery, GroupBy, Queues};
use tallystone_model::names::INTERNAL_QUEUES;

/// Names in their order.
pub(crate) struct Names {
    left: std::vec::IntoIter<String>,
    /// The user has named them, so each of them must exist.
    pub(super) are_given: bool,
}

impl Names {
    /// The next ones.
    pub(super) fn take(&mut self, count: usize) -> Vec<String> {
        self.left.by_ref().take(count).collect()
    }

    /// How many are left.
    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    /// The next one.
    pub(crate) fn first(&self) -> Option<&String> {
        self.left.as_slice().first()
    }
}

/// The given queues; if none are given, all queues except the internal ones, including deleted queues that still have
/// messages in history. `from`: only this name and those after it.
pub(crate) async fn names(given: Vec<String>, from: Option<String>, session: &Session) -> Result<Names, CliError> {
    let are_given = !given.is_empty();
    let mut names: BTreeSet<String> = given.into_iter().collect();
    if !are_given {
        names.extend(session.queues("").await?.into_iter().map(|summary| summary.queue.name));
        let all = Queues::WithPrefix(String::new());
        let mut counted = DepthQuery { group_by: Some(GroupBy::Queue), page_size: PAGE, ..DepthQuery::of(all) };
        loop {
            let page = session.client.indexed_depth(counted.clone()).await.map_err(|error| cli_error(&error))?;
            names.extend(page.groups.into_iter().map(|group| group.value));
            counted.page_token = page.next_page_token;
            if counted.page_token.is_empty() {
                break;
            }
        }
        // They have no history, unless a server keeps it.
        names.retain(|name| !name.starts_with(INTERNAL_QUEUES));
    }
    let names = names.into_iter().filter(|name| from.as_ref().is_none_or(|from| name >= from)).collect::<Vec<_>>();
    Ok(Names { left: names.into_iter(), are_given })
}
