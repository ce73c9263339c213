//! kill -9 at random moments under load, with fsync before each reply: nothing that was acknowledged is lost, nothing counts twice
//! (W4). Some kills come while the engine rewrites its log, or while tables move to files.

use super::cold::cold_node;
use super::load::{Load, SCHEMA, judge};
use super::{is_long, random};
use rand::Rng;
use std::process::Command;
use std::time::Duration;
use tallystone_tests::compact::{Engine, Setup, eventually};

/// Of each engine, with and without cold tables: 52 in all.
const ROUNDS: u32 = 13;

fn kill_at_random_moments(name: &str, engine: Engine, options: &str) {
    let mut random = random(name);
    // Small, so that logs are rewritten between and during kills.
    let rewrites = "--auto-aof-rewrite-min-size 200kb --auto-aof-rewrite-percentage 50";
    let mut node = Setup::new(engine).args(rewrites).start();
    node.wire().done(&format!("CT.CREATE k {options} {SCHEMA}"));
    let load = Load::new(node.port());
    let rounds = if is_long() { 10 * ROUNDS } else { ROUNDS };
    let sums = load.run(4, &mut random, |random| {
        for _ in 0..rounds {
            load.progress(1);
            std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
            node.kill();
            node.start_again();
        }
        load.progress(20);
    });
    let commands = load.done.into_inner();
    println!("{name}: {commands} commands, {} ids", sums.len());
    judge(&node, &sums);
    node.kill();
    node.start_again();
    judge(&node, &sums);
}

#[test]
fn w4_kills_lose_nothing_and_count_nothing_twice() {
    for engine in Engine::ALL {
        kill_at_random_moments(&format!("kills on {engine:?}"), engine, "TABLE_SLOTS 1024");
    }
}

#[test]
fn w4_kills_lose_nothing_while_tables_are_cold() {
    for engine in Engine::ALL {
        let name = format!("kills with cold tables on {engine:?}");
        kill_at_random_moments(&name, engine, "TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 100000");
    }
}

/// The child that writes a snapshot has the open files of its parent, and the locks on them. It may outlive the parent.
#[test]
fn w3_files_of_a_killed_engine_are_removed_when_its_child_has_ended() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setup = || Setup::new(Engine::Redis).without_fsync().cold(folder.path());
    // The child waits after each key.
    let node = cold_node(setup().args("--rdb-key-save-delay 600000000"));
    node.wire().done("BGSAVE");
    let log = node.log();
    let child = log.rsplit_once("Background saving started by pid ").expect("a child").1;
    let child = child.split_ascii_whitespace().next().expect("a number").to_owned();
    let kill =
        |pid: &str| assert!(Command::new("kill").args(["-9", pid]).status().is_ok_and(|killed| killed.success()));
    kill(&node.pid().to_string());
    eventually("the engine is gone", || !node.answers());
    let left = node.cold_files().len();
    assert!(left > 10, "{left} files");
    let next = setup().without_log().start();
    assert_eq!(next.cold_files().len(), left, "the child has them");
    kill(&child);
    eventually("they are removed", || next.cold_files().is_empty());
}
