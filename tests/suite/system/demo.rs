//! `tallystone demo flights`: the main job, whole, on real input.

use super::program;

#[tokio::test]
async fn q4_a_month_of_flights_is_flown() {
    let ended = program::run(program::command(&["--json", "demo", "flights"]), "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.object();
    let refused: u64 = report["refused"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((&report["rows"], refused), (&27_004.into(), 155), "{report:#}");
    assert_eq!(report["enqueued"], 27_004 - 155);
    assert_eq!(report["completed"], report["enqueued"]);
    for (field, value) in [("order_violations", 0), ("duplicates_completed", 0), ("max_running_per_aircraft", 1)] {
        assert_eq!(report[field], value, "{field}: {report:#}");
    }
    assert_ne!(report["redelivered"], 0, "a worker was killed: {report:#}");
}
