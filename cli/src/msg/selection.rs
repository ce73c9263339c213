//! Verbs on all messages that flags select, page by page.

use super::outcome::{ItemOutcome, show_outcomes};
use crate::connection::Session;
use crate::consent::{Consent, Plan, messages};
use crate::duration::parse_moment;
use crate::error::CliError;
use crate::text::parse_pair;
use clap::Args;
use serde::Serialize;
use tallystone_client::{Change, ChangeRequest, Filter, Selection, State};

/// The flags that say that messages are selected, instead of their ids: `--state`, and those of a verb that name states too.
pub(super) const SELECTED: &str = "selected";

#[derive(Args, Debug)]
pub(super) struct SelectionArgs {
    /// Instead of ids: all messages in this state; repeat for several states
    #[arg(long, value_name = "STATE", group = SELECTED)]
    state: Vec<State>,
    /// With --state: only messages with this metadata; repeat for several pairs, all of which must match
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = parse_pair, requires = SELECTED)]
    pairs: Vec<(String, String)>,
    /// With --state: only messages whose last reason contains this text
    #[arg(long, value_name = "TEXT", requires = SELECTED, default_value = "", hide_default_value = true)]
    reason_contains: String,
    /// With --state: only messages whose last reason is exactly this text
    #[arg(long, value_name = "TEXT", requires = SELECTED, default_value = "", hide_default_value = true)]
    reason_equals: String,
    /// With --state: only messages that entered this state at this time or later: 2013-01-01T10:15:00Z, or 90m for 90
    /// minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = SELECTED)]
    since: Option<u64>,
    /// With --state: only messages that entered this state before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = SELECTED)]
    until: Option<u64>,
}

/// What was done, over all pages.
#[derive(Debug, Default, Serialize)]
struct Report {
    queue: String,
    examined: u64,
    matched: u64,
    changed: u64,
}

impl SelectionArgs {
    /// With these states; without any, as before.
    pub(super) fn or(self, states: Vec<State>) -> SelectionArgs {
        if states.is_empty() { self } else { SelectionArgs { state: states, ..self } }
    }

    /// `None`: the ids are typed.
    pub(super) fn into_selection(self) -> Option<Selection> {
        let metadata: std::collections::BTreeMap<String, String> = self.pairs.into_iter().collect();
        (!self.state.is_empty()).then(|| Selection {
            states: self.state,
            filter: (!metadata.is_empty()).then_some(Filter(metadata)),
            reason: self.reason_equals,
            reason_contains: self.reason_contains,
            entered_from_ms: self.since.unwrap_or(0),
            entered_to_ms: self.until.unwrap_or(0),
        })
    }
}

/// Changes the messages that the selection matches. Fails at the first page with a message that is refused.
pub(super) async fn change_selected(
    queue: &str,
    selection: Selection,
    change: Change,
    consent: &Consent,
    session: &Session,
) -> Result<(), CliError> {
    let (verb, past) = match &change {
        Change::Redrive => ("Redrive", "Redriven"),
        Change::Cancel { .. } => ("Cancel", "Canceled"),
        Change::Update(_) => ("Update", "Updated"),
    };
    let mut request = ChangeRequest::new(selection, change);
    if consent.shows_number() {
        let dry_run = ChangeRequest { dry_run: true, ..request.clone() };
        let (counted, _) = pages(queue, dry_run, session).await?;
        if counted.matched == 0 && !session.output.json {
            return session.output.line(&format!("No message of {queue} matches."));
        }
        // The change takes what matches then: messages enter the states while a person decides.
        let what = format!("{verb} all matching messages of {queue}, now {}", messages(counted.matched));
        if !consent.given(&Plan { what, queue, messages: counted.matched }, session.output)? {
            return Ok(());
        }
    }
    request.dry_run = false;
    let (report, refused) = pages(queue, request, session).await?;
    session.output.one(&report, |report| format!("{past} {} of {queue}.", messages(report.changed)))?;
    if refused.is_empty() { Ok(()) } else { show_outcomes(&refused, session) }
}

/// All pages, or those up to the first with a refused message.
async fn pages(
    queue: &str,
    mut request: ChangeRequest,
    session: &Session,
) -> Result<(Report, Vec<ItemOutcome>), CliError> {
    let mut report = Report { queue: queue.to_owned(), ..Report::default() };
    loop {
        let page = session.call(queue, session.client.change_messages(queue, request.clone())).await?;
        report.examined += page.examined;
        report.matched += page.matched;
        report.changed += page.changed;
        if page.next_page_token.is_empty() || !page.refused.is_empty() {
            let refused = page.refused.into_iter().map(|(id, refused)| ItemOutcome::new(id, Err(refused)));
            return Ok((report, refused.collect()));
        }
        request.page_token = page.next_page_token;
    }
}
