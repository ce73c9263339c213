//! kill -9 at random moments under load, with fsync before each reply: nothing that was acknowledged is lost, nothing counts twice
//! (W4). Some kills come while the engine rewrites its log, or while tables move to files.

use super::load::{Load, SCHEMA, judge};
use super::random;
use rand::Rng;
use std::fs::File;
use std::process::Command;
use std::time::Duration;
use tallystone_tests::amount;
use tallystone_tests::compact::{Engine, Setup, eventually};

/// The kills of each test. Each engine has two tests: with and without cold tables.
const ROUNDS: u32 = 25;
/// In one of this many rounds the test starts a rewrite right before the kill. Other kills meet a rewrite by chance.
const REWRITE_EVERY: u32 = 5;

fn kill_at_random_moments(name: &str, engine: Engine, options: &str) {
    let mut random = random(name);
    // Small, so that logs are rewritten between and during kills.
    let rewrites = "--auto-aof-rewrite-min-size 200kb --auto-aof-rewrite-percentage 50";
    let mut node = Setup::new(engine).args(rewrites).start();
    node.wire().done(&format!("CT.CREATE k {options} {SCHEMA}"));
    let load = Load::new(node.port());
    let rounds = amount(ROUNDS, 10 * ROUNDS);
    let mut rewriting = 0;
    let sums = load.run(4, &mut random, |random| {
        for round in 0..rounds {
            load.progress(1);
            std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
            if round % REWRITE_EVERY == 0 {
                // Refused if a rewrite runs.
                node.wire().run("BGREWRITEAOF");
            }
            rewriting += u32::from(node.info("persistence", "aof_rewrite_in_progress") == "1");
            node.kill();
            node.start_again();
        }
        load.progress(20);
    });
    let (commands, repeated) = (load.done.into_inner(), load.repeated.into_inner());
    println!("{name}: {commands} commands, {repeated} repeated, {} ids; {rewriting} kills in rewrites", sums.len());
    assert!(rewriting > 0 && repeated > 0, "{rewriting} kills in rewrites, {repeated} commands repeated");
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

/// As the child of a killed engine does that writes a snapshot: it has the open files of its parent, and the locks on them.
#[test]
fn w3_files_that_another_process_holds_are_removed_when_it_has_ended() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tallystone-1.cold");
    let path = file.to_str().expect("a plain path");
    File::create(&file).expect("a file");
    let holder = Command::new("flock").args(["--exclusive", "--no-fork", path, "sleep", "600"]).spawn();
    let mut holder = holder.expect("flock of util-linux");
    eventually("it is held", || File::open(&file).is_ok_and(|file| file.try_lock().is_err()));
    let node = Setup::new(Engine::Redis).without_log().cold(folder.path()).start();
    assert_eq!(node.cold_files(), [file], "another process has it");
    holder.kill().expect("it runs");
    holder.wait().expect("an end");
    eventually("it is removed", || node.cold_files().is_empty());
}
