//! `tallystone demo flights`: the whole system on real input, and the history that stays after it.

use super::program;

#[tokio::test]
async fn q4_q21_n3_n8_a_month_of_flights_is_processed_counted_and_traced() {
    let data = tempfile::tempdir().expect("a folder");
    let command = |args: &[&str]| {
        let mut command = program::command(args);
        command.env("XDG_DATA_HOME", data.path());
        command
    };
    let ended = program::run(command(&["--json", "demo", "flights"]), "").await;
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

    let counters = report["counters"].as_object().expect("an object");
    for (name, total) in [("carrier/UA", 4_605), ("origin/EWR", 9_859), ("route/JFK-LAX", 936), ("aircraft/N730MQ", 74)]
    {
        assert_eq!(counters[name], total, "{name}: as in the input file");
    }
    let total = |kind: &str| {
        let of_kind = counters.iter().filter(|(name, _)| name.starts_with(kind));
        of_kind.map(|(_, total)| total.as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!(["carrier/", "origin/", "route/", "aircraft/"].map(total), [27_004 - 155; 4]);
    let counting = &report["counting"];
    assert_eq!((&counting["counted"], &counting["duplicates"]), (&counting["adds"], &counting["adds"]), "{counting:#}");
    assert_eq!(counting["rollups"]["overlapped"], 0, "{counting:#}");
    assert_ne!(counting["killed_worker"]["begun"], 0, "a rollup worker was killed: {counting:#}");

    let history = &report["history"];
    let waits = history["waits_by_carrier"].as_array().expect("a list");
    assert_eq!(waits.iter().map(|wait| wait["flights"].as_u64().unwrap()).sum::<u64>(), 27_004 - 155, "{history:#}");
    assert!(history["longest_wait"]["flights_before"].as_u64().unwrap() > 0, "{history:#}");
    let by = |trace: &[serde_json::Value]| -> Vec<String> {
        trace.iter().map(|transition| transition["by"].as_str().unwrap().to_owned()).collect()
    };
    let killed = &history["killed_flight"];
    let expected = ["enqueue", "dequeue", "lease_expired", "dequeue", "complete"];
    assert_eq!(by(killed["transitions"].as_array().expect("a list")), expected);

    // No server runs any more: the demo's history file answers, up to the message's collection.
    let id = killed["id"].as_str().expect("an id");
    let traced = program::run(command(&["msg", "trace", id, "--json"]), "").await;
    assert_eq!(traced.code, Some(0), "{traced:?}");
    let whole = traced.json();
    assert_eq!(by(&whole)[..5], expected);
    let versions: Vec<u64> = whole.iter().map(|transition| transition["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, (1..=versions.len() as u64).collect::<Vec<_>>());
    assert!(whole.last().is_some_and(|last| last["to"].is_null()), "the queue is deleted: {traced:?}");
}
