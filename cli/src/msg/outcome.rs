//! How the outcomes of a call for several messages are shown.

use crate::connection::Session;
use crate::error::CliError;
use crate::flag_names::in_flags;
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
