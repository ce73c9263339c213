//! The tools of Redis drive the module as it is (W1).

use std::process::Command;
use tallystone_local::redis_py;
use tallystone_tests::compact::{Engine, Node, Setup};

fn benchmark(node: &Node, args: &[&str]) {
    let port = node.port().to_string();
    let run = Command::new("redis-benchmark")
        .args(["-p", &port, "-n", "20000", "-c", "20", "-P", "16", "-r", "1000", "-q"])
        .args(args)
        .output();
    let run = run.expect("redis-benchmark, of the package redis-tools");
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && said.contains("requests per second") && !said.contains("rror"), "{args:?}: {said}");
}

#[test]
fn w1_redis_benchmark_and_redis_cli_drive_it() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_fsync().start();
        node.wire().done("CT.CREATE k SCHEMA likes 24 views 24");
        benchmark(&node, &["CT.INCRBY", "k", "__rand_int__", "likes", "1"]);
        benchmark(&node, &["CT.MINCRBY", "k", "__rand_int__", "likes", "1", "__rand_int__", "views", "2"]);
        benchmark(&node, &["CT.GET", "k", "__rand_int__"]);
        let rows = node.scan("k");
        let sums = rows.values().fold((0, 0), |sums, row| (sums.0 + row[0], sums.1 + row[1]));
        assert_eq!(sums, (40_000, 40_000));
        assert!(rows.keys().all(|id| *id < 1_000));
        benchmark(&node, &["CT.MGET", "k", "__rand_int__", "__rand_int__"]);
        // Packed bytes that an argument of a program can have: an id, the second field, a delta.
        let (id, delta) = ("ABCDEFGH", "\u{1}\u{1}\u{1}\u{1}");
        benchmark(&node, &["CT.PINCRBY", "k", &format!("{id}\u{1}{delta}")]);
        benchmark(&node, &["CT.PGET", "k", id]);
        let rows = node.scan("k");
        let sum = 20_000 * i64::from(i32::from_le_bytes([1; 4]));
        assert_eq!(rows[&u64::from_le_bytes(*b"ABCDEFGH")], [0, sum]);
        for name in ["ct.mget", "ct.pget"] {
            let calls = node.info("commandstats", &format!("cmdstat_{name}"));
            assert!(calls.starts_with("calls=20000,") && calls.contains("failed_calls=0"), "{name}: {calls}");
        }
        let port = node.port().to_string();
        let cli = Command::new("redis-cli").args(["-3", "-p", &port, "CT.INFO", "k"]).output().expect("redis-cli");
        let said = String::from_utf8_lossy(&cli.stdout);
        assert!(said.contains("schema") && said.contains("likes u24 views u24"), "{said}");
    }
}

#[test]
fn w1_redis_py_drives_it() {
    for engine in Engine::ALL {
        for protocol in ["2", "3"] {
            let node = Setup::new(engine).without_fsync().start();
            let python = Command::new("python3")
                .arg("-c")
                .arg(include_str!("drivers.py"))
                .args([node.port().to_string().as_str(), protocol])
                .env("PYTHONPATH", redis_py().unwrap_or_else(|missing| panic!("{missing}")))
                .output()
                .expect("python3");
            let said = String::from_utf8_lossy(&python.stderr);
            assert!(python.status.success(), "{engine:?}, RESP{protocol}: {said}");
        }
    }
}
