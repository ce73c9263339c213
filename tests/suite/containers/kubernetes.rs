//! The manifests of Kubernetes, played by podman: it knows Deployments, ConfigMaps and claims, and skips Services and policies.

use super::engine::{Container, Network, image, podman, try_podman};
use super::view::POST_VIEW;
use crate::security::certificates::Ca;
use crate::system::program::{self, SOON};
use std::os::unix::fs::{PermissionsExt as _, chown};
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
        remove_volumes();
    }
}

/// Podman keeps the claim, and makes a volume of each ConfigMap.
fn remove_volumes() {
    for name in ["redis", "views", "indexer", "ingest"] {
        try_podman(&["volume", "rm", "--force", &format!("tallystone-{name}")]);
    }
    try_podman(&["volume", "rm", "--force", "tallystone"]);
}

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes").join(name);
    std::fs::read_to_string(path).expect("a manifest")
}

/// The manifests as podman can play them, on one machine with this Kafka and Elasticsearch, without their secrets.
fn playable(kafka: &Container, elasticsearch: &Container) -> String {
    let sections = format!(
        "    [kafka]\n    brokers = \"{}:9092\"\n\n    [elasticsearch]\n    url = \"http://{}:9200\"\n\n",
        kafka.0, elasticsearch.0
    );
    // As the comment in the manifest of the indexer says.
    let with_history = manifest("tallystone.yaml").replace("    [tls]\n", &format!("{sections}    [tls]\n"));
    let names = ["redis.yaml", "views.yaml", "indexer.yaml", "ingest.yaml"];
    let text = names.map(manifest).into_iter().chain([with_history]).collect::<Vec<_>>().join("---\n");
    let text = text
        .replace("kafka-1:9093,kafka-2:9093", &format!("{}:9092", kafka.0))
        .replace("https://elasticsearch:", &format!("http://{}:", elasticsearch.0));
    let secured =
        ["security =", "sasl_mechanism =", "user =", "password_file =", "ca_file =", "api_key_file =", "replicas = 3"];
    let secret = ["- name: secrets", "mountPath: /etc/tallystone/secrets", "secret: {"];
    let lines = text.lines().filter(|line| {
        let line = line.trim();
        !secured.iter().chain(&secret).any(|start| line.starts_with(start))
    });
    on_one_machine(&lines.map(|line| format!("{line}\n")).collect::<String>())
}

/// The same without history, with TLS and tokens whose files are in this folder.
fn secured(secrets: &Path) -> String {
    // Podman knows Secrets only in later versions. The mode of files from a ConfigMap would let everybody read the key.
    let with_files = manifest("tallystone.yaml")
        .lines()
        .map(|line| match line.trim().starts_with("secret: {") {
            true => format!("          hostPath: {{ path: {}, type: Directory }}\n", secrets.display()),
            false => format!("{line}\n"),
        })
        .collect::<String>();
    // As applied one after the other: the later ConfigMap replaces the earlier one.
    let (_, processes) = with_files.split_once("---\n").expect("the ConfigMap comes first");
    on_one_machine(&[&manifest("redis.yaml"), &manifest("secured.yaml"), processes].join("---\n"))
}

fn on_one_machine(text: &str) -> String {
    let of = |deployment: &str| format!("{deployment}{}", pod_suffix());
    // Podman has no Services: the names are those of its pods.
    let text = text
        .replace("replicas: 2", "replicas: 1")
        .replace("redis://tallystone-redis:", &format!("redis://{}:", of("tallystone-redis")))
        .replace("http://tallystone:", &format!("http://{}:", of("tallystone")))
        .replace("http://tallystone-counters:", &format!("http://{}:", of("tallystone-counters")))
        .replace("image: tallystone\n", &format!("image: {}\n", image()))
        .replace("https://tallystone:", &format!("https://{}:", of("tallystone")))
        .replace("kind: StatefulSet", "kind: Deployment");
    // Its earlier versions publish each port of a container on the same port of the machine, unless one is named.
    let lines = text.lines().map(|line| match line.split_once("- containerPort: ") {
        Some((indent, _)) => format!("{line}\n{indent}  hostPort: {}\n", lasting_port()),
        None => format!("{line}\n"),
    });
    lines.collect()
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
async fn o4_the_manifests_of_kubernetes_serve_queues_counters_views_history_and_ingest() {
    let network = Network::new("kube");
    let (kafka, elasticsearch) = (Container::kafka(&network), Container::elasticsearch(&network));
    let dir = TempDir::new().expect("a temporary folder");
    let of = |deployment: &str| format!("{deployment}{}", pod_suffix());
    let path = dir.path().join("all.yaml");
    std::fs::write(&path, playable(&kafka, &elasticsearch)).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    let played = Played(path.clone());
    // A test that was killed has left them.
    remove_volumes();
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

    let views = format!("{}-views", of("tallystone-views"));
    until_succeeds(&views, &["health", "--port", "7620"]).await;
    assert!(podman(&["exec", &views, "bash", "-c", POST_VIEW]).contains(" 202 "));
    until_answers(server, &[&counters[..], &["get", "--namespace", "views-default", "cats"]].concat(), "1").await;

    until_succeeds(&format!("{}-indexer", of("tallystone-indexer")), &["health", "--port", "7601"]).await;
    until_answers(server, &["msg", "trace", "q", "a"], "enqueue").await;
    until_answers(server, &["msg", "search", "--queue", "q"], "a").await;

    kafka.create_topic("adds");
    until_succeeds(&format!("{}-ingest", of("tallystone-ingest")), &["health", "--port", "7630"]).await;
    kafka.produce("adds", r#"{"counter":"records","delta":2}"#);
    until_answers(server, &[&counters[..], &["get", "records"]].concat(), "2").await;
    drop(played);
    let volumes = podman(&["volume", "ls", "--format", "{{.Name}}"]);
    assert!(!volumes.lines().any(|volume| volume.starts_with("tallystone")), "{volumes}");
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_secured_manifest_serves_callers_with_a_token_over_tls_and_no_others() {
    let network = Network::new("kube");
    let dir = TempDir::new().expect("a temporary folder");
    let of = |deployment: &str| format!("{deployment}{}", pod_suffix());
    let secrets = dir.path().join("secrets");
    std::fs::create_dir(&secrets).expect("a folder");
    let ca = Ca::new(&secrets, "ca");
    ca.server_of(&secrets, &[&of("tallystone"), &of("tallystone-counters"), "localhost"]);
    let mut principals = String::new();
    for (name, rights) in [("operator", ["admin:*", "admin:rollup/*"]), ("counters", ["admin:rollup/*"; 2])] {
        let token = secrets.join(format!("{name}.token"));
        let args = ["token", "new", "--name", name, "--out", token.to_str().expect("text")];
        let rights = rights.map(|right| ["--right", right]).concat();
        let made = program::run(program::command(&[&args[..], &rights].concat()), "").await;
        assert_eq!(made.code, Some(0), "{made:?}");
        principals.push_str(&made.stdout);
    }
    std::fs::write(secrets.join("principals.toml"), principals).expect("a file");
    // The user of the image, as with `fsGroup`.
    for entry in std::fs::read_dir(&secrets).expect("a folder") {
        chown(entry.expect("an entry").path(), Some(7600), Some(7600)).expect("root runs the engine");
    }
    for folder in [dir.path(), &secrets] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("our folder");
    }
    let path = dir.path().join("all.yaml");
    std::fs::write(&path, secured(&secrets)).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    let _played = Played(path.clone());
    remove_volumes();
    podman(&["kube", "play", "--network", &network.0, &path]);
    let server = &format!("{}-server", of("tallystone"));
    let counters = format!("{}-counters", of("tallystone-counters"));
    let worker = format!("{}-rollup-worker", of("tallystone-rollup-worker"));
    for (container, port) in [(server, "7600"), (&counters, "7610"), (&worker, "9640")] {
        until_succeeds(container, &["health", "--port", port]).await;
    }
    let url = format!("https://{}:7600", of("tallystone"));
    let mounted = "/etc/tallystone/secrets";
    let (ca, token) = (format!("{mounted}/ca.pem"), format!("{mounted}/operator.token"));
    let of_operator = ["--ca", &ca, "--token-file", &token];
    let to_server = [&["--server", &url][..], &of_operator].concat();
    until_succeeds(server, &[&["msg", "enqueue", "q", "--id", "a", "--payload", "hello"][..], &to_server].concat())
        .await;
    until_answers(server, &[&["queue", "ls"][..], &to_server].concat(), "q").await;
    for refused in [&["--server", &url, "--ca", &ca][..], &["--server", &url.replace("https", "http")]] {
        let ran = try_podman(&[&["exec", server, "tallystone", "queue", "ls"], refused].concat());
        assert!(!ran.status.success(), "{refused:?}: {ran:?}");
    }
    // The counters and the rollup worker have their token: an add is summed by a job of the queue.
    let url = format!("https://{}:7610", of("tallystone-counters"));
    let to_counters = [&["counter", "--counters", &url][..], &of_operator].concat();
    until_succeeds(server, &[&to_counters[..], &["namespace", "put", "default"]].concat()).await;
    until_succeeds(server, &[&to_counters[..], &["add", "visits", "3"]].concat()).await;
    until_answers(server, &[&to_counters[..], &["get", "visits"]].concat(), "3").await;
}
