//! The manifests of Kubernetes, played by podman: it knows Deployments, ConfigMaps and claims, and skips Services and policies.

use super::engine::{Network, image, podman, try_podman};
use crate::system::program::SOON;
use std::path::Path;
use std::time::Duration;
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Manifests that play; dropping them removes what they made.
struct Played(String);

impl Drop for Played {
    fn drop(&mut self) {
        try_podman(&["kube", "down", &self.0]);
        try_podman(&["volume", "rm", "--force", "tallystone-redis"]);
    }
}

/// What podman adds to the name of a deployment for the name of its pod; before 4.4 also the number of the replica.
fn pod_suffix() -> &'static str {
    let version = podman(&["version", "--format", "{{.Client.Version}}"]);
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(4), Some(4)) { "-pod-0" } else { "-pod" }
}

/// Runs the program in a container of a pod, until it succeeds.
async fn until_succeeds(container: &str, args: &[&str]) -> String {
    until_answers(container, args, "").await
}

/// Runs it until it succeeds, and its answer has these words.
async fn until_answers(container: &str, args: &[&str], words: &str) -> String {
    let give_up_at = Instant::now() + SOON;
    loop {
        let ran = try_podman(&[&["exec", container, "tallystone"], args].concat());
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        if ran.status.success() && printed.contains(words) {
            return printed;
        }
        let logs = try_podman(&["logs", container]);
        assert!(Instant::now() < give_up_at, "{ran:?} {logs:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_manifests_of_kubernetes_serve_queues_and_counters() {
    let network = Network::new("kube");
    let dir = TempDir::new().expect("a temporary folder");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a manifest");
    let of = |deployment: &str| format!("{deployment}{}", pod_suffix());
    // Podman has no Services: the names are those of its pods.
    let text = format!("{}---\n{}", read("redis.yaml"), read("tallystone.yaml"))
        .replace("replicas: 2", "replicas: 1")
        .replace("redis://tallystone-redis:", &format!("redis://{}:", of("tallystone-redis")))
        .replace("http://tallystone:", &format!("http://{}:", of("tallystone")))
        .replace("image: tallystone\n", &format!("image: {}\n", image()));
    // Its earlier versions publish each port of a container on the same port of the machine, unless one is named.
    let lines = text.lines().map(|line| match line.split_once("- containerPort: ") {
        Some((indent, _)) => format!("{line}\n{indent}  hostPort: {}\n", lasting_port()),
        None => format!("{line}\n"),
    });
    let text: String = lines.collect();
    let path = dir.path().join("all.yaml");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    let _played = Played(path.clone());
    podman(&["kube", "play", "--network", &network.0, &path]);
    let server = &format!("{}-server", of("tallystone"));
    until_succeeds(server, &["health", "--port", "7600"]).await;
    until_succeeds(server, &["msg", "enqueue", "q", "--id", "a", "--payload", "hello"]).await;
    assert!(until_succeeds(server, &["msg", "get", "q", "a"]).await.contains("hello"));
    let url = format!("http://{}:7610", of("tallystone-counters"));
    let counters = ["counter", "--counters", &url];
    until_succeeds(server, &[&counters[..], &["namespace", "put", "default"]].concat()).await;
    until_succeeds(server, &[&counters[..], &["add", "visits", "3"]].concat()).await;
    let container = format!("{}-counters", of("tallystone-counters"));
    until_succeeds(&container, &["health", "--port", "7610"]).await;
    // The rollup worker gets its jobs from the server that the configuration names.
    let worker = format!("{}-rollup-worker", of("tallystone-rollup-worker"));
    until_succeeds(&worker, &["health", "--port", "9640"]).await;
    until_answers(server, &[&counters[..], &["get", "visits"]].concat(), "3").await;
}
