//! `tallystone counter audit COUNTER…`: counts the events of a counter again, and compares (N12).

use super::get::counts;
use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::error::CliError;
use crate::limits::PAGE_ITEMS_MAX;
use crate::output::grouped;
use crate::table::table;
use clap::Args;
use serde::Serialize;
use tallystone_client::{Counted, CounterEvent, CounterType};

/// How often an ACCURATE counter is read again because its count has changed meanwhile.
const TRIES: usize = 5;
/// A list without a begin has the last ten minutes only.
const BEGIN_MS: u64 = 1;

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    #[command(flatten)]
    within: InNamespace,
}

/// What a counter says, and what its events say.
#[derive(Debug, PartialEq, Serialize)]
struct Audit {
    counter: String,
    count: i64,
    /// The sum of the adds after the last clear.
    recounted: i128,
    events: u64,
    exact_to_ms: u64,
    agrees: bool,
}

/// What the events of a counter say. They come in the order of their times.
#[derive(Debug, Default)]
struct Recount {
    events: u64,
    sum: i128,
    cleared_ms: Option<u64>,
}

impl Recount {
    /// A clear removes every add up to its time, also those of the same time that are listed after it.
    fn take(&mut self, event: &CounterEvent) {
        self.events += 1;
        if event.clear {
            (self.sum, self.cleared_ms) = (0, Some(event.event_time_ms));
        } else if self.cleared_ms.is_none_or(|cleared_ms| event.event_time_ms > cleared_ms) {
            self.sum += i128::from(event.delta);
        }
    }
}

pub(crate) async fn run(args: AuditArgs, session: &CounterSession) -> Result<(), CliError> {
    let mut audits = Vec::with_capacity(args.counters.len());
    for counter in &args.counters {
        audits.push(audit(counter, &args.within.namespace, session).await?);
    }
    session
        .output
        .many(&audits, |audits| table(&["counter", "#count", "#recounted", "#events", ""], audits.iter().map(row)))?;
    match audits.iter().filter(|audit| !audit.agrees).count() {
        0 => Ok(()),
        differ => Err(CliError::refused(format!("{differ} of {} differ", audits.len()))
            .hint("events older than `delete after` of the namespace are gone, and so are their adds in the recount")),
    }
}

async fn audit(counter: &str, namespace: &str, session: &CounterSession) -> Result<Audit, CliError> {
    let mut counted = read(counter, namespace, session).await?;
    for _ in 1..TRIES {
        let found = audited(counter, namespace, &counted, session).await?;
        let again = read(counter, namespace, session).await?;
        if found.agrees || counted.counter_type == CounterType::Eventual || again.count == counted.count {
            return Ok(found);
        }
        counted = again;
    }
    audited(counter, namespace, &counted, session).await
}

async fn read(counter: &str, namespace: &str, session: &CounterSession) -> Result<Counted, CliError> {
    let outcomes = counts(&[counter.to_owned()], namespace, None, session).await?;
    let counted = outcomes.into_iter().next().and_then(|outcome| outcome.counted);
    counted.ok_or_else(|| CliError::refused(format!("no count of {counter}")))
}

async fn audited(
    counter: &str,
    namespace: &str,
    counted: &Counted,
    session: &CounterSession,
) -> Result<Audit, CliError> {
    // An ACCURATE count has every event.
    let end_ms = if counted.counter_type == CounterType::Eventual { counted.exact_to_ms.max(BEGIN_MS) } else { 0 };
    let (mut recount, mut page_token) = (Recount::default(), String::new());
    loop {
        let page = session.client.list_events(namespace, counter, BEGIN_MS, end_ms, PAGE_ITEMS_MAX, &page_token);
        let page = session.call(namespace, page).await?;
        page.items.iter().for_each(|event| recount.take(event));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(Audit {
        counter: counter.to_owned(),
        count: counted.count,
        recounted: recount.sum,
        events: recount.events,
        exact_to_ms: counted.exact_to_ms,
        agrees: recount.sum == i128::from(counted.count),
    })
}

fn row(audit: &Audit) -> Vec<String> {
    let recounted = i64::try_from(audit.recounted).map_or_else(|_| audit.recounted.to_string(), count_text);
    let verdict = if audit.agrees { "agrees" } else { "differs" };
    vec![audit.counter.clone(), count_text(audit.count), recounted, grouped(audit.events), verdict.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_time_ms: u64, delta: i64, clear: bool) -> CounterEvent {
        CounterEvent { event_time_ms, token: format!("{event_time_ms}{delta}"), delta, clear }
    }

    #[test]
    fn n12_a_clear_removes_every_add_up_to_its_time() {
        let recounted = |events: &[CounterEvent]| {
            let mut recount = Recount::default();
            events.iter().for_each(|event| recount.take(event));
            (recount.events, recount.sum)
        };
        assert_eq!(recounted(&[event(1, 5, false), event(2, -7, false)]), (2, -2));
        assert_eq!(recounted(&[event(1, 5, false), event(2, 0, true), event(2, 9, false), event(3, 4, false)]), (4, 4));
        assert_eq!(recounted(&[event(1, i64::MAX, false), event(2, i64::MAX, false)]), (2, 2 * i128::from(i64::MAX)));
    }
}
