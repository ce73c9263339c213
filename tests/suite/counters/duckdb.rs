//! A program that knows nothing of Tallystone reads the archive: DuckDB (N15).

use super::sums::all_sums;
use super::*;
use std::collections::BTreeSet;
use std::process::Command;
use tallystone_counters::sums::Period;
use tallystone_local::duckdb;

/// Counter or labels, hour (Unix ms) or 0, the sum of its adds, their number, the number of its clears.
type Row = (String, u64, i64, u64, u64);

fn rows(archive: &ArchiveFolder, by: &str) -> Vec<Row> {
    let objects = archive.folder.path().join("*/*/*.parquet");
    let python = Command::new("python3")
        .arg("-c")
        .arg(include_str!("duckdb.py"))
        .arg(by)
        .arg(objects)
        .env("PYTHONPATH", duckdb().unwrap_or_else(|missing| panic!("{missing}")))
        .output()
        .expect("python3");
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    serde_json::from_slice(&python.stdout).expect("rows")
}

#[tokio::test]
async fn n15_duckdb_reads_the_same_sums_from_the_archive() {
    let config = NamespaceConfig { archived: true, seconds_per_slice: 3_600, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("duckdb", config).await;
    let names = ["ads/clicks", "é", "views"];
    for round in 0..150_u64 {
        let now_ms = ns.now_ms();
        for n in 0..9 {
            let delta = rand::random_range(-1_000_000_000_000..1_000_000_000_000);
            let one = add(names[n as usize % 3], &format!("{round}-{n}"), now_ms - n * 100, delta);
            assert!(ns.append_one(one).await.is_ok());
        }
        ns.pass(rand::random_range(60_000..180_000));
        for name in names {
            ns.roll_up(name).await;
        }
        if round % 5 == 0 {
            ns.archive_everything().await;
        }
    }
    let clear = event("views", "clear", ns.now_ms(), Change::Clear);
    assert!(ns.append_one(clear).await.is_ok());
    ns.pass(60_000);
    ns.roll_up("views").await;
    ns.archive_everything().await;
    let in_minutes = rows(&ns.archive, "hours");
    let mut merged = BTreeSet::new();
    while ns.store.redis.merge_archive(&mut merged).await.expect("objects") > 0 {}
    assert!(merged.len() > 2, "slices were closed");
    let found = rows(&ns.archive, "hours");
    assert_eq!(found, in_minutes, "merged objects have the same rows");
    let of = |name: &str| found.iter().filter(|row| row.0 == name).cloned().collect::<Vec<Row>>();
    for name in names {
        let sums = all_sums(&ns.store, name, Period::Hour, 1..ns.now_ms(), ns.now_ms()).await;
        let expected: Vec<(u64, i64, u64)> =
            sums.into_iter().map(|sum| (sum.from_ms, sum.sum as i64, sum.adds)).collect();
        let with_adds = of(name).into_iter().filter(|row| row.3 > 0);
        assert_eq!(with_adds.map(|row| (row.1, row.2, row.3)).collect::<Vec<_>>(), expected, "{name}");
    }
    assert_eq!(of("é").iter().map(|row| row.2).sum::<i64>(), ns.count("é").await);
    assert_eq!((of("views").iter().map(|row| row.4).sum::<u64>(), found.len() > 9), (1, true));
}

/// Objects with the columns of labels, and others without them.
#[tokio::test]
async fn n20_duckdb_groups_the_archive_by_source_and_item() {
    let config = NamespaceConfig { archived: true, seconds_per_slice: 3_600, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("duckdb-labels", config).await;
    for (number, (source, key)) in [("", ""), ("eu", "é"), ("", "é"), ("eu", ""), ("", "")].into_iter().enumerate() {
        let now_ms = ns.now_ms();
        let labels = Labels::parse(source, key).expect("labels");
        let one = NewEvent { labels, ..add("c", &number.to_string(), now_ms, 1 << number) };
        assert_eq!(ns.append_one(one).await, counted(now_ms));
        ns.settled("c").await;
        ns.archive_everything().await;
    }
    let row = |labels: &str, sum, adds| (labels.to_owned(), 0, sum, adds, 0);
    let expected = [row("/", 17, 2), row("/é", 4, 1), row("eu/", 8, 1), row("eu/é", 2, 1)];
    assert_eq!(rows(&ns.archive, "labels"), expected);
}
