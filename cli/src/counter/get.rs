//! `tallystone counter get COUNTER…`

use super::session::{CounterSession, InNamespace, refusal};
use super::text::{count_text, exactness};
use crate::duration::now_ms;
use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::limits::BATCH_ITEMS_MAX;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use tallystone_client::{Counted, Refused};

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    #[command(flatten)]
    within: InNamespace,
}

/// A count, or why the read was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) counter: String,
    #[serde(flatten)]
    pub(crate) counted: Option<Counted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn run(args: GetArgs, session: &CounterSession) -> Result<(), CliError> {
    let (counters, namespace) = (&args.counters, &args.within.namespace);
    let outcomes = counts(counters, namespace, session).await?;
    session.output.many(&outcomes, |outcomes| text(outcomes, now_ms()))?;
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} were refused", outcomes.len()))),
    }
}

/// All counts, in the order of the counters. If only one counter was given and it is refused, this fails.
pub(crate) async fn counts(
    counters: &[String],
    namespace: &str,
    session: &CounterSession,
) -> Result<Vec<Outcome>, CliError> {
    let mut outcomes = Vec::with_capacity(counters.len());
    for batch in counters.chunks(BATCH_ITEMS_MAX) {
        let results = session.call(namespace, session.client.get_many(namespace, batch.to_vec())).await?;
        if let ([_], [Err(refused)]) = (counters, results.as_slice()) {
            return Err(refusal(refused));
        }
        outcomes.extend(batch.iter().cloned().zip(results).map(|(counter, result)| Outcome::new(counter, result)));
    }
    Ok(outcomes)
}

impl Outcome {
    pub(crate) fn new(counter: String, result: Result<Counted, Refused>) -> Self {
        match result {
            Ok(counted) => Outcome { counter, counted: Some(counted), reason: None, error: None },
            Err(refused) => {
                let error = Some(in_flags(&refused));
                Outcome { counter, counted: None, reason: Some(refused.reason), error }
            }
        }
    }

    /// The count as text, and a remark on how exact it is.
    pub(crate) fn text(&self, now_ms: u64) -> (String, String) {
        match &self.counted {
            Some(counted) => {
                let exactness = exactness(Some(counted.counter_type), counted.exact_to_ms, now_ms);
                (count_text(counted.count), exactness)
            }
            None => (String::new(), format!("refused: {}", visible(self.error.as_deref().unwrap_or_default()))),
        }
    }
}

/// One count on a line, or a table of several.
pub(crate) fn text(outcomes: &[Outcome], now_ms: u64) -> String {
    if let [outcome] = outcomes {
        let (count, remark) = outcome.text(now_ms);
        return format!("{count}  ({remark})");
    }
    table(
        &["counter", "#count", ""],
        outcomes.iter().map(|outcome| {
            let (count, remark) = outcome.text(now_ms);
            vec![outcome.counter.clone(), count, remark]
        }),
    )
}
