//! The files of Compose, brought up as a whole by docker-compose, which calls podman.

use super::engine::{image, podman, produce, try_podman, unique};
use super::view::POST_VIEW;
use crate::system::program::{self, Ended, SOON};
use futures::future::join_all;
use std::path::Path;
use std::time::Duration;
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// How long all services may take until they are healthy: two JVMs on a machine that does much else.
const UP_WAIT: Duration = Duration::from_secs(360);
const LABEL: &str = "com.docker.compose.project";

/// A project of Compose; dropping it removes what it made.
struct Project {
    name: String,
    /// Of `docker-compose`: the name and the files.
    options: Vec<String>,
    /// Where the server and the counters listen.
    server: String,
    counters: String,
    /// Where both have their metrics: `HOST:PORT`.
    metrics: [String; 2],
    _dir: TempDir,
}

impl Project {
    /// Starts all services of these files, each when those that it depends on are healthy.
    async fn up(files: &[&str]) -> Project {
        let (name, dir) = (unique("compose"), TempDir::new().expect("a temporary folder"));
        let published = ["7600", "7610", "7620", "9600", "9601", "9610", "9620", "9630", "9640"];
        let ports = published.map(|port| (port, lasting_port()));
        let mut options = vec!["--project-name".to_owned(), name.clone()];
        for file in files {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
            let mut text = std::fs::read_to_string(path).expect("a file of Compose");
            text = text.replace("image: tallystone\n", &format!("image: {}\n", image()));
            for (published, free) in ports {
                text = text.replace(&format!("\"127.0.0.1:{published}:"), &format!("\"127.0.0.1:{free}:"));
            }
            let copy = dir.path().join(file);
            std::fs::write(&copy, text).expect("a file");
            options.extend(["--file".to_owned(), copy.to_str().expect("text").to_owned()]);
        }
        let address = |number: usize| format!("127.0.0.1:{}", ports[number].1);
        let [server, counters] = [0, 1].map(|number| format!("http://{}", address(number)));
        let metrics = [3, 5].map(address);
        let project = Project { name, options, server, counters, metrics, _dir: dir };
        let up = async { tokio::time::timeout(UP_WAIT, project.compose(&["up", "--detach"])).await };
        // Without systemd, podman runs no health check on its own.
        tokio::select! {
            ended = up => ended.unwrap_or_else(|_| panic!("not up in time: {}", project.logs())),
            () = project.keep_checking_health() => unreachable!("it has no end"),
        };
        project
    }

    /// Runs docker-compose; it must succeed.
    async fn compose(&self, args: &[&str]) {
        let ran = Command::new("docker-compose").args(&self.options).args(args).kill_on_drop(true).output().await;
        let ran = ran.expect("docker-compose: scripts/containers.sh installs it");
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "docker-compose {args:?}: {error} {}", self.logs());
    }

    fn filter(&self) -> String {
        format!("label={LABEL}={}", self.name)
    }

    fn containers(&self, format: &str) -> Vec<String> {
        let found = podman(&["ps", "--all", "--filter", &self.filter(), "--format", format]);
        found.lines().map(str::to_owned).collect()
    }

    /// Runs the health check of each container, as systemd would.
    async fn check_health(&self) {
        let checks = self.containers("{{.ID}}").into_iter().map(|container| async move {
            let _ = Command::new("podman").args(["healthcheck", "run", &container]).output().await;
        });
        join_all(checks).await;
    }

    async fn keep_checking_health(&self) {
        loop {
            self.check_health().await;
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until every service is healthy. A service that only creates a topic has ended.
    async fn is_healthy(&self, services: usize) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let states = self.containers("{{.Names}} {{.Status}}");
            let has_ended = |state: &String| state.contains("topic") && state.contains("Exited (0)");
            let are_healthy = states.iter().all(|state| state.contains("(healthy)") || has_ended(state));
            if states.len() == services && are_healthy {
                return;
            }
            assert!(Instant::now() < give_up_at, "{states:?} {}", self.logs());
            self.check_health().await;
        }
    }

    /// Runs the program, until it succeeds with an answer that is expected.
    async fn until(&self, args: &[&str], is_expected: impl Fn(&Ended) -> bool) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let addresses = ["--server", &self.server, "--json"];
            let ended = program::run(program::command(&[args, &addresses].concat()), "").await;
            if ended.code == Some(0) && is_expected(&ended) {
                return;
            }
            assert!(Instant::now() < give_up_at, "{args:?}: {ended:?} {}", self.logs());
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A message, and a counter whose sum is exact.
    async fn serves(&self) {
        self.until(&["msg", "enqueue", "q", "--id", "a", "--payload", "hello"], |_| true).await;
        self.until(&["msg", "get", "q", "a"], |ended| ended.stdout.contains("pending")).await;
        let counter = ["counter", "--counters", &self.counters];
        self.until(&[&counter[..], &["namespace", "put", "default"]].concat(), |_| true).await;
        self.until(&[&counter[..], &["add", "visits", "3"]].concat(), |_| true).await;
        let get = [&counter[..], &["get", "visits"]].concat();
        self.until(&get, |ended| ended.object()["count"] == 3).await;
    }

    /// Removes everything, and checks that nothing is left.
    async fn down(self) {
        self.compose(&["down", "--volumes", "--timeout", "10"]).await;
        assert_eq!(self.containers("{{.Names}}"), [""; 0]);
        for kind in ["volume", "network"] {
            let left = podman(&[kind, "ls", "--format", "{{.Name}}"]);
            assert!(!left.contains(&self.name), "{kind}: {left}");
        }
    }

    fn logs(&self) -> String {
        let logs = self.containers("{{.Names}}").into_iter().map(|name| {
            let logs = try_podman(&["logs", "--tail", "20", &name]);
            format!("\n== {name}\n{}", String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()))
        });
        logs.collect()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        for container in self.containers("{{.ID}}") {
            try_podman(&["rm", "--force", "--volumes", "--time", "1", &container]);
        }
        try_podman(&["network", "rm", "--force", &format!("{}_default", self.name)]);
        for volume in ["redis", "kafka", "elasticsearch"] {
            try_podman(&["volume", "rm", "--force", &format!("{}_{volume}", self.name)]);
        }
    }
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_compose_serves_queues_and_counters() {
    let project = Project::up(&["compose.yaml"]).await;
    project.is_healthy(4).await;
    project.serves().await;
    for (address, store) in project.metrics.iter().zip(["queues", "counters"]) {
        let free = format!("tallystone_store_disk_free_bytes{{store=\"{store}\"}} ");
        program::until("it sees the disk of Redis", async || program::metrics_page(address).await.contains(&free))
            .await;
    }
    project.down().await;
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_compose_with_views_counts_a_view() {
    counts_a_view(&["compose.yaml", "compose.views.yaml"], 5).await;
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_compose_with_views_in_kafka_counts_a_view() {
    counts_a_view(&["compose.yaml", "compose.history.yaml", "compose.views-kafka.yaml"], 8).await;
}

/// These files start so many healthy services, one of which is a view counter.
async fn counts_a_view(files: &[&str], services: usize) {
    let project = Project::up(files).await;
    project.is_healthy(services).await;
    let views =
        project.containers("{{.Names}}").into_iter().find(|name| name.contains("views")).expect("a view counter");
    assert!(podman(&["exec", &views, "bash", "-c", POST_VIEW]).contains(" 202 "));
    let get = ["counter", "--counters", &project.counters, "get", "--namespace", "views-default", "cats"];
    project.until(&get, |ended| ended.object()["count"] == 1).await;
    project.down().await;
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_compose_with_history_traces_and_finds_messages() {
    let project = Project::up(&["compose.yaml", "compose.history.yaml"]).await;
    project.is_healthy(7).await;
    project.serves().await;
    project.until(&["msg", "trace", "q", "a"], |ended| ended.stdout.contains("enqueue")).await;
    project.until(&["msg", "search", "--queue", "q"], |ended| ended.stdout.contains("\"a\"")).await;
    project.down().await;
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_compose_with_ingest_counts_the_adds_of_a_topic() {
    let project = Project::up(&["compose.yaml", "compose.history.yaml", "compose.ingest.yaml"]).await;
    project.is_healthy(9).await;
    project.serves().await;
    let kafka = project.containers("{{.Names}}").into_iter().find(|name| name.contains("kafka")).expect("a Kafka");
    produce(&kafka, "adds", r#"{"counter":"records","delta":2}"#);
    let get = ["counter", "--counters", &project.counters, "get", "records"];
    project.until(&get, |ended| ended.object()["count"] == 2).await;
    project.down().await;
}
