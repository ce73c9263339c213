//! `tallystone demo flights`: the whole system on real input, and the history that stays after it.

use super::dev::Dev;
use super::program;
use std::io::{BufRead, BufReader, Write};

#[tokio::test]
async fn q4_q21_n3_n8_v3_l2_a_month_of_flights_is_processed_counted_and_traced() {
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
    for (how, all) in [("views", "routes"), ("local", "counters")] {
        assert_ne!(counting[how][all], 0, "{counting:#}");
        assert_eq!(counting[how]["equal"], counting[how][all], "each count equals that of the file: {counting:#}");
    }
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

/// The month's first 600 flights, one of them twice, and one with another delay.
#[tokio::test]
async fn q4_flights_of_a_file_are_processed_once_on_a_server_that_runs() {
    let month = &include_bytes!("../../../lab/demo/data/flights-2013-01.csv.gz")[..];
    let lines: Vec<String> = BufReader::new(flate2::read::GzDecoder::new(month))
        .lines()
        .take(601)
        .collect::<Result<_, _>>()
        .expect("a file of the demo");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let (same, other) = (&lines[1], lines[2].replace(",4,", ",99,"));
    assert_ne!(lines[2], other);
    writeln!(file, "{}\n{same}\n{other}", lines.join("\n")).expect("it is written");
    let without = lines[1..].iter().filter(|line| line.split(',').nth(3) == Some("")).count() as u64;

    let dev = Dev::start().await;
    let path = file.path().to_str().expect("a path");
    let report = dev.ok(&["demo", "flights", "--file", path, "--workers", "4"]).await;
    assert_eq!((&report["rows"], &report["repeated"]), (&602.into(), &1.into()), "{report:#}");
    assert_eq!(report["refused"]["ID_CONFLICT"], 1);
    assert_eq!(report["refused"]["INVALID_ARGUMENT"].as_u64().unwrap_or(0), without);
    assert_eq!(report["completed"], 600 - without);
    assert_eq!(report["redelivered"].as_u64(), report["killed"]["flights"].as_array().map(|held| held.len() as u64));
    assert_ne!(report["redelivered"], 0);
    let left = dev.call(&["queue", "ls"]).await;
    assert_eq!((left.code, left.stdout.as_str()), (Some(0), ""), "the demo's queue is gone");
    dev.stop().await;
}
