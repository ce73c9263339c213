//! What became of a read of many counters.

use super::session::refusal;
use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::limits::BATCH_ITEMS_MAX;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_client::Refused;

/// A count, or why the read was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome<T> {
    pub(crate) counter: String,
    #[serde(flatten)]
    pub(crate) counted: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// What the server adds to the reason, such as the time to which the count is exact.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl<T> Outcome<T> {
    pub(crate) fn new(counter: String, result: Result<T, Refused>) -> Self {
        match result {
            Ok(counted) => {
                Outcome { counter, counted: Some(counted), reason: None, error: None, metadata: BTreeMap::new() }
            }
            Err(refused) => {
                let error = Some(in_flags(&refused));
                Outcome { counter, counted: None, reason: Some(refused.reason), error, metadata: refused.metadata }
            }
        }
    }
}

/// Reads all counters, in their order and in batches. If only one was given and it is refused, this fails.
pub(super) async fn read<T>(
    counters: &[String],
    batch: impl AsyncFn(Vec<String>) -> Result<Vec<Result<T, Refused>>, CliError>,
) -> Result<Vec<Outcome<T>>, CliError> {
    let mut outcomes = Vec::with_capacity(counters.len());
    for names in counters.chunks(BATCH_ITEMS_MAX) {
        let results = batch(names.to_vec()).await?;
        if let ([_], [Err(refused)]) = (counters, results.as_slice()) {
            return Err(refusal(refused));
        }
        outcomes.extend(names.iter().cloned().zip(results).map(|(counter, result)| Outcome::new(counter, result)));
    }
    Ok(outcomes)
}

/// Fails if some were refused.
pub(super) fn check<T>(outcomes: &[Outcome<T>]) -> Result<(), CliError> {
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} were refused", outcomes.len()))),
    }
}
