//! `tallystone counter audit COUNTER…`: counts the events of a counter again, and compares (N12). With `--by` it shows from where
//! the adds came, or what they count (N20).

use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::format_time;
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use crate::text::visible;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tallystone_client::{Audit, AuditGroup, AuditGrouping};

/// Groups that people are shown of a counter: those with the largest sums. JSON has all.
const GROUPS_SHOWN: usize = 100;

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    /// Also group the adds since the last clear, by their source or their item key
    #[arg(long, value_name = "LABEL")]
    pub(crate) by: Option<By>,
    #[command(flatten)]
    within: InNamespace,
}

/// By what adds are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Where they come from (`counter add --source`)
    Source,
    /// What they count (`counter add --item-key`)
    Item,
}

impl By {
    fn grouping(self) -> AuditGrouping {
        match self {
            By::Source => AuditGrouping::Source,
            By::Item => AuditGrouping::EventItemKey,
        }
    }

    fn column(self) -> &'static str {
        match self {
            By::Source => "source",
            By::Item => "item key",
        }
    }
}

/// What a counter says, and what its events say.
#[derive(Debug, Serialize)]
struct Audited<'a> {
    counter: &'a str,
    #[serde(flatten)]
    audit: Audit,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<AuditGroup>>,
}

pub(crate) async fn run(args: AuditArgs, session: &CounterSession) -> Result<(), CliError> {
    let mut audits = Vec::with_capacity(args.counters.len());
    for counter in &args.counters {
        let namespace = &args.within.namespace;
        let (audit, groups) = match args.by {
            None => (session.call(namespace, session.client.audit(namespace, counter)).await?, None),
            Some(by) => {
                let call = session.client.audit_by(namespace, counter, by.grouping());
                let (audit, groups) = session.call(namespace, call).await?;
                (audit, Some(groups))
            }
        };
        audits.push(Audited { counter, audit, groups });
    }
    session.output.many(&audits, |audits| {
        let mut text = table(&["counter", "#count", "#recounted", "#events", ""], audits.iter().map(row));
        if let Some(by) = args.by {
            text = format!("{}\n\n{}", text.trim_end(), grouped_text(audits, by));
        }
        text
    })?;
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

/// The groups of all counters, and how many more there are.
fn grouped_text(audits: &[Audited<'_>], by: By) -> String {
    let shown = |of: &Audited<'_>| -> Vec<Vec<String>> {
        let groups = of.groups.iter().flatten().take(GROUPS_SHOWN);
        let row = |AuditGroup { key, adds, sum }: &AuditGroup| {
            vec![of.counter.to_owned(), key.clone(), grouped(*adds), count_text(*sum)]
        };
        groups.map(row).collect()
    };
    let mut text = table(&["counter", by.column(), "#adds", "#sum"], audits.iter().flat_map(shown));
    for Audited { counter, groups, .. } in audits {
        let more = groups.iter().flatten().skip(GROUPS_SHOWN).count() as u64;
        if more > 0 {
            text =
                format!("{}\n{}: {} more, in the output of --json", text.trim_end(), visible(counter), grouped(more));
        }
    }
    text
}

fn row(Audited { counter, audit, .. }: &Audited<'_>) -> Vec<String> {
    let verdict = match audit {
        Audit { exact_to_ms: 0, .. } => "no count yet",
        Audit { agrees: true, .. } => "agrees",
        _ => "differs",
    };
    let (count, recounted) = (count_text(audit.count), count_text(audit.recounted));
    vec![(*counter).to_owned(), count, recounted, grouped(audit.events), verdict.to_owned()]
}
