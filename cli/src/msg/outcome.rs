//! How the outcomes of a call for several messages are shown.

use crate::connection::Session;
use crate::consent::messages;
use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::limits::BATCH_ITEMS_MAX;
use crate::table::table;
use serde::Serialize;
use tallystone_client::{Refused, Transition};

/// The result of a call for one message: its transition, or why the call was refused.
#[derive(Serialize)]
pub(super) struct ItemOutcome {
    id: String,
    #[serde(flatten)]
    transition: Option<Transition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ItemOutcome {
    pub(super) fn new(id: String, result: Result<Transition, Refused>) -> Self {
        match result {
            Ok(transition) => ItemOutcome { id, transition: Some(transition), reason: None, error: None },
            Err(refused) => {
                let error = Some(in_flags(&refused));
                ItemOutcome { id, transition: None, reason: Some(refused.reason), error }
            }
        }
    }
}

/// Changes messages, a batch in a call, and shows what happened to each. If a call fails, it shows what the calls before it did.
pub(super) async fn change_each(
    ids: &[String],
    session: &Session,
    call: impl AsyncFn(&[String]) -> Result<Vec<Result<Transition, Refused>>, CliError>,
) -> Result<(), CliError> {
    let (mut outcomes, mut failed) = (Vec::new(), None);
    for ids in ids.chunks(BATCH_ITEMS_MAX) {
        match call(ids).await {
            Ok(results) => {
                outcomes.extend(ids.iter().cloned().zip(results).map(|(id, result)| ItemOutcome::new(id, result)));
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    match failed {
        None => show_outcomes(&outcomes, session),
        Some(error) if outcomes.is_empty() => Err(error),
        Some(error) => {
            let left = (ids.len() - outcomes.len()) as u64;
            let of_call = left.min(BATCH_ITEMS_MAX as u64);
            let _ = show_outcomes(&outcomes, session);
            let (of_call, not_sent) = (messages(of_call), messages(left - of_call));
            Err(error.at(format!("the call about {of_call} failed, and {not_sent} were not sent")))
        }
    }
}

/// Shows each outcome; fails if a message was refused.
pub(super) fn show_outcomes(outcomes: &[ItemOutcome], session: &Session) -> Result<(), CliError> {
    session.output.many(outcomes, |outcomes| {
        let text = |outcome: &ItemOutcome| match (&outcome.transition, &outcome.error) {
            (Some(transition), _) => transition.state.to_string(),
            (None, error) => format!("refused: {}", error.as_deref().unwrap_or_default()),
        };
        table(&["id", "outcome"], outcomes.iter().map(|outcome| vec![outcome.id.clone(), text(outcome)]))
    })?;
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} were refused", outcomes.len()))),
    }
}
