//! The systemd units as docs/deploy.md installs them, in a container in which systemd runs: what they forbid, the program does not need.

use super::engine::{Container, podman, try_podman};
use crate::system::program::{self, SOON};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Neither Kafka nor Elasticsearch runs there. Both may be away at the start of a program. Its Redis is that of Debian.
const CONFIG: &str = r#"
[server]
metrics_listen = "127.0.0.1:9600"
[counters]
queue_url = "http://127.0.0.1:7600"
[redis]
data_dir = "/var/lib/redis"
[rollup_worker]
metrics_listen = "127.0.0.1:9640"
queue_url = "http://127.0.0.1:7600"
[views]
counters_url = "http://127.0.0.1:7610"
[ingest]
topic = "adds"
counters_url = "http://127.0.0.1:7610"
[kafka]
brokers = "127.0.0.1:9"
[elasticsearch]
url = "http://127.0.0.1:9"
[audit]
file = "/var/log/tallystone/audit.log"
all_calls = true
"#;
/// Each unit, the port where it answers, and whether it is ready without Kafka and Elasticsearch.
const UNITS: [(&str, &str, bool); 6] = [
    ("server", "7600", true),
    ("counters", "7610", true),
    ("rollup-worker", "9640", true),
    ("views", "7620", true),
    ("indexer", "7601", false),
    ("ingest", "7630", false),
];

/// Runs a command in the container until it succeeds.
async fn until(machine: &Container, command: &[&str]) -> String {
    let give_up_at = Instant::now() + SOON;
    loop {
        let ran = try_podman(&[&["exec", &machine.0], command].concat());
        if ran.status.success() {
            return String::from_utf8_lossy(&ran.stdout).into_owned();
        }
        assert!(Instant::now() < give_up_at, "{command:?}: {ran:?} {}", journal(machine));
        sleep(Duration::from_millis(200)).await;
    }
}

fn journal(machine: &Container) -> String {
    podman(&["exec", &machine.0, "journalctl", "--no-pager", "--lines", "200"])
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_units_start_under_systemd_and_stop_in_order() {
    let dir = TempDir::new().expect("a temporary folder");
    let config = dir.path().join("tallystone.toml");
    std::fs::write(&config, CONFIG).expect("a file");
    let machine = Container::run("units", &["--systemd=always", "--privileged"], "localhost/tallystone-systemd", &[]);
    // It is up when it answers.
    until(&machine, &["systemctl", "is-active", "redis-server"]).await;
    podman(&["exec", &machine.0, "useradd", "--system", "tallystone"]);
    podman(&["exec", &machine.0, "install", "--directory", "--owner", "tallystone", "/etc/tallystone"]);
    let copy = |from: &Path, to: &str| podman(&["cp", from.to_str().expect("text"), &format!("{}:{to}", machine.0)]);
    copy(program::path(), "/usr/local/bin/tallystone");
    copy(&config, "/etc/tallystone/tallystone.toml");
    podman(&["exec", &machine.0, "chmod", "644", "/etc/tallystone/tallystone.toml"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        copy(&path, "/etc/systemd/system/");
        names.push(path.file_name().expect("a name").to_str().expect("text").to_owned());
    }
    let mut known = UNITS.map(|(unit, ..)| format!("tallystone-{unit}.service"));
    known.sort();
    names.sort();
    assert_eq!(names, known, "each unit is tried");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    podman(&["exec", &machine.0, "systemctl", "daemon-reload"]);
    podman(&[&["exec", &machine.0, "systemctl", "start"][..], &names].concat());
    for (_, port, is_ready) in UNITS {
        until(&machine, &["tallystone", "health", "--live", "--port", port]).await;
        if is_ready {
            until(&machine, &["tallystone", "health", "--port", port]).await;
        }
    }
    // A message, a rollup, a line of the audit log, all of it within what the units allow.
    until(&machine, &["tallystone", "msg", "enqueue", "q", "--id", "a", "--payload", "hello"]).await;
    until(&machine, &["tallystone", "counter", "namespace", "put", "default"]).await;
    until(&machine, &["tallystone", "counter", "add", "visits", "3"]).await;
    let give_up_at = Instant::now() + SOON;
    while !until(&machine, &["tallystone", "counter", "get", "visits"]).await.contains('3') {
        assert!(Instant::now() < give_up_at, "{}", journal(&machine));
        sleep(Duration::from_millis(200)).await;
    }
    let audit = podman(&["exec", &machine.0, "cat", "/var/log/tallystone/audit.log"]);
    assert!(audit.contains("Enqueue"), "{audit}");
    for (unit, ..) in UNITS {
        let unit = format!("tallystone-{unit}");
        let show = |property: &str| {
            podman(&["exec", &machine.0, "systemctl", "show", "--value", "--property", property, &unit])
        };
        // The filter of system calls is there, so what follows says something.
        let status = podman(&["exec", &machine.0, "cat", &format!("/proc/{}/status", show("MainPID"))]);
        assert!(status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])), "{unit}: {status}");
        podman(&["exec", &machine.0, "systemctl", "stop", &unit]);
        let ended = ["Result", "ExecMainStatus", "NRestarts"].map(show);
        assert_eq!(ended, ["success", "0", "0"], "{unit}: {}", journal(&machine));
    }
}
