//! What must hold after the demo. Each check compares what the workers or the counters recorded with the file; none
//! relies on what the server says, except the one that is named so.

use super::counting::Counting;
use super::enqueue::Enqueued;
use super::judge::Verdict;
use super::killed::KilledWorker;
use super::plan::Plan;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_client::Depth;

/// Something that must hold, and whether it did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(super) name: String,
    pub(super) passed: bool,
    pub(super) detail: String,
}

impl Check {
    fn new(name: &str, passed: bool, detail: String) -> Check {
        Check { name: name.to_owned(), passed, detail }
    }
}

/// Checks of the queue.
pub(super) fn queue_checks(
    verdict: &Verdict,
    enqueued: &Enqueued,
    plan: &Plan,
    killed: Option<&KilledWorker>,
    depth: Depth,
) -> Vec<Check> {
    let accepted = plan.flights.len() as u64;
    let refused: u64 = enqueued.refused.iter().map(|rows| rows.rows).sum();
    let (without, conflicts) = (enqueued.rows_without_aircraft, enqueued.conflicts());
    let taken = if conflicts > 0 { format!(", {conflicts} with another row's id") } else { String::new() };
    let mut checks = vec![
        Check::new(
            "no aircraft flew two flights at once",
            verdict.max_running_per_aircraft <= 1,
            format!("at most {} at any moment", verdict.max_running_per_aircraft),
        ),
        Check::new(
            "each aircraft flew its flights in order of departure",
            verdict.order_violations == 0,
            format!("{} out of order", verdict.order_violations),
        ),
        Check::new(
            "every flight was completed exactly once",
            verdict.completed == accepted && verdict.duplicates_completed == 0 && verdict.strangers == 0,
            format!(
                "{} of {accepted}, {} twice, {} never enqueued",
                verdict.completed, verdict.duplicates_completed, verdict.strangers
            ),
        ),
        Check::new(
            "only rows without a tail number were refused",
            refused == without + conflicts && enqueued.refused_wrongly(plan) == 0,
            format!("{refused} refused, {without} without{taken}"),
        ),
    ];
    if let Some(killed) = killed {
        let (held, taken_over) = (killed.flights.len(), killed.taken_over());
        checks.push(Check::new(
            "other workers flew the killed worker's flights",
            held > 0 && taken_over == held,
            format!("{taken_over} of {held}"),
        ));
    }
    checks.push(Check::new(
        "the server's own counts agree",
        depth.completed == accepted && depth.live() == 0 && depth.errored + depth.canceled == 0,
        format!("{} completed, {} left", depth.completed, depth.live()),
    ));
    checks
}

/// Checks of the counters.
pub(super) fn counter_checks(counters: &BTreeMap<String, i64>, counting: &Counting) -> Vec<Check> {
    let Counting { adds, counted, duplicates, refused, rollups, direct, views, local, .. } = counting;
    let equal = counters.iter().filter(|(name, total)| direct.get(*name) == Some(*total)).count();
    vec![
        Check::new(
            "every counter equals a direct count of the file",
            counters == direct,
            format!("{equal} of {}", direct.len()),
        ),
        Check::new(
            "every add was sent twice and counted once",
            counted == adds && duplicates == adds && *refused == 0,
            format!("{counted} counted, {duplicates} ignored, {refused} refused"),
        ),
        Check::new(
            "no two rollups of one counter overlapped",
            rollups.overlapped == 0 && rollups.committed > 0,
            format!("{} of {} rollups", rollups.overlapped, rollups.begun),
        ),
        Check::new(
            "as views, each aircraft of a route counted once",
            views.equal == views.routes && views.routes > 0,
            format!("{} of {} routes", views.equal, views.routes),
        ),
        Check::new(
            "counters in this process equal the same count",
            local.equal == local.counters && local.counters > 0,
            format!("{} of {}", local.equal, local.counters),
        ),
    ]
}
