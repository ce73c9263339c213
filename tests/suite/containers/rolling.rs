//! Servers under one name are replaced one by one (O3). While a server is away, its address belongs to no machine, and callers
//! still have it.

use super::engine::{Container, Network, image, podman};
use crate::system::program::SOON;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAME: &str = "tallystone";
/// How many messages are completed between two replacements.
const BETWEEN: usize = 20;
const POLL: Duration = Duration::from_millis(100);
/// Enqueues until it may stop; one failed call ends it.
const PRODUCER: &str = "i=0; until [ -e /tmp/stop ]; do tallystone msg enqueue q --id \"$i\" >/dev/null || exit 9; i=$((i + 1)); done; \
                        echo \"$i\"";

/// The ids that the worker has printed, once for each run.
fn runs(worker: &Container) -> Vec<String> {
    let logs = worker.logs();
    logs.lines().filter_map(|line| line.strip_prefix("ran ")).map(str::to_owned).collect()
}

async fn until_runs(worker: &Container, producer: &Container, count: usize) {
    let give_up_at = Instant::now() + SOON;
    while runs(worker).len() < count {
        assert!(Instant::now() < give_up_at, "no progress: {} {}", worker.logs(), producer.logs());
        sleep(POLL).await;
    }
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o3_servers_of_one_name_are_replaced_one_by_one_without_a_failed_call() {
    let network = Network::new("rolling");
    let redis = Container::redis(&network);
    // In files of hosts: podman's name server loses requests while containers come and go.
    let store = format!("redis://{}:6379", redis.address(&network));
    let server = async |options: &[&str]| Container::server_with(&[&network], &store, options).await.0;
    let mut servers = [server(&[]).await, server(&[]).await];
    podman(&["exec", &servers[0].0, "tallystone", "queue", "create", "q"]);
    let addresses = servers.each_ref().map(|server| server.address(&network));
    let hosts = addresses.each_ref().map(|address| format!("--add-host={NAME}:{address}"));
    let variable = format!("TALLYSTONE_SERVER=http://{NAME}:7600");
    let caller = ["--network", &network.0, "--env", &variable, &hosts[0], &hosts[1]];
    let worker = Container::run("worker", &caller, image(), &["work", "q", "--exec", "echo ran $TALLYSTONE_ID"]);
    let producer =
        Container::run("producer", &[&caller[..], &["--entrypoint", "bash"]].concat(), image(), &["-c", PRODUCER]);
    for _ in 0..2 {
        for (old, address) in servers.iter_mut().zip(&addresses) {
            until_runs(&worker, &producer, runs(&worker).len() + BETWEEN).await;
            podman(&["stop", "--time", "60", &old.0]);
            assert_eq!(podman(&["inspect", "--format", "{{.State.ExitCode}}", &old.0]), "0", "{}", old.logs());
            podman(&["rm", &old.0]);
            *old = server(&["--ip", address]).await;
        }
    }
    podman(&["exec", &producer.0, "touch", "/tmp/stop"]);
    assert_eq!(podman(&["wait", &producer.0]), "0", "a call failed: {}", producer.logs());
    let made: usize = producer.logs().lines().last().expect("a number").parse().expect("a number");
    until_runs(&worker, &producer, made).await;
    let runs = runs(&worker);
    let different: BTreeSet<_> = runs.iter().collect();
    assert_eq!((runs.len(), different.len()), (made, made), "each message has run once");
}
