//! `tallystone counter audit COUNTER…`: counts the events of a counter again, and compares (N12).

use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::format_time;
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use clap::Args;
use serde::Serialize;
use tallystone_client::Audit;

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    #[command(flatten)]
    within: InNamespace,
}

/// What a counter says, and what its events say.
#[derive(Debug, Serialize)]
struct Audited<'a> {
    counter: &'a str,
    #[serde(flatten)]
    audit: Audit,
}

pub(crate) async fn run(args: AuditArgs, session: &CounterSession) -> Result<(), CliError> {
    let mut audits = Vec::with_capacity(args.counters.len());
    for counter in &args.counters {
        let namespace = &args.within.namespace;
        let audit = session.call(namespace, session.client.audit(namespace, counter)).await?;
        audits.push(Audited { counter, audit });
    }
    session
        .output
        .many(&audits, |audits| table(&["counter", "#count", "#recounted", "#events", ""], audits.iter().map(row)))?;
    let differ: Vec<&Audit> = audits.iter().map(|of| &of.audit).filter(|audit| !audit.agrees).collect();
    if differ.is_empty() {
        return Ok(());
    }
    let refused = CliError::refused(format!("{} of {} differ", differ.len(), audits.len()));
    Err(match differ.iter().find(|audit| !audit.complete) {
        Some(audit) => {
            let kept_from = format_time(audit.kept_from_ms);
            let why = format!(
                "events before {kept_from} are older than `delete after` of the namespace: if they are gone, so are their \
                 adds in the recount"
            );
            refused.hint(why)
        }
        None => refused.hint("`tallystone counter recount` makes a count the sum of its events"),
    })
}

fn row(Audited { counter, audit }: &Audited<'_>) -> Vec<String> {
    let verdict = match audit {
        Audit { exact_to_ms: 0, .. } => "no count yet",
        Audit { agrees: true, .. } => "agrees",
        _ => "differs",
    };
    let (count, recounted) = (count_text(audit.count), count_text(audit.recounted));
    vec![(*counter).to_owned(), count, recounted, grouped(audit.events), verdict.to_owned()]
}
