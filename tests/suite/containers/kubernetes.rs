//! The manifests of Kubernetes, played by podman: it knows Deployments, ConfigMaps and claims, and skips Services and policies.

use super::engine::{Container, Network, image, podman, try_podman};
use super::view::POST_VIEW;
use crate::security::certificates::Ca;
use crate::system::pages::blocks;
use crate::system::program::{self, SOON};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;
use tallystone_tests::{http_builder, lasting_port};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// The names in the manifests are those of pods and volumes of this machine, so one test plays them at a time.
static PLAYING: Mutex<()> = Mutex::const_new(());

/// Manifests that play; dropping them removes what they made.
struct Played(String);

impl Drop for Played {
    fn drop(&mut self) {
        try_podman(&["kube", "down", &self.0]);
        remove_volumes();
    }
}

impl Played {
    /// Plays them. The file is in this folder.
    fn play(dir: &Path, network: &Network, text: &str) -> Played {
        let path = dir.join("all.yaml");
        std::fs::write(&path, text).expect("a file");
        let played = Played(path.to_str().expect("text").to_owned());
        // A test that was killed has left them.
        remove_volumes();
        podman(&["kube", "play", "--network", &network.0, &played.0]);
        played
    }
}

/// Podman keeps the claim, and makes a volume of each ConfigMap.
fn remove_volumes() {
    for name in ["redis", "redis-secured", "views", "indexer", "ingest"] {
        try_podman(&["volume", "rm", "--force", &format!("tallystone-{name}")]);
    }
    try_podman(&["volume", "rm", "--force", "tallystone"]);
}

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes").join(name);
    std::fs::read_to_string(path).expect("a manifest")
}

/// These manifests and that of the servers as podman can play them, on one machine with this Kafka, without their secrets. With an
/// Elasticsearch, the servers have history.
fn playable(names: &[&str], kafka: &Container, elasticsearch: Option<&Container>) -> String {
    let mut servers = manifest("tallystone.yaml");
    if let Some(elasticsearch) = elasticsearch {
        let sections = format!(
            "    [kafka]\n    brokers = \"{}:9092\"\n\n    [elasticsearch]\n    url = \"http://{}:9200\"\n\n",
            kafka.0, elasticsearch.0
        );
        // As the comment in the manifest of the indexer says.
        servers = servers.replace("    [tls]\n", &format!("{sections}    [tls]\n"));
    }
    let text = names.iter().map(|name| manifest(name)).chain([servers]).collect::<Vec<String>>().join("---\n");
    let mut text = text.replace("kafka-1:9093,kafka-2:9093", &format!("{}:9092", kafka.0));
    if let Some(elasticsearch) = elasticsearch {
        text = text.replace("https://elasticsearch:", &format!("http://{}:", elasticsearch.0));
    }
    let secured =
        ["security =", "sasl_mechanism =", "user =", "password_file =", "ca_file =", "api_key_file =", "replicas = 3"];
    let mounted = ["- name: secrets", "mountPath: /etc/tallystone/secrets", "secret: {"];
    on_one_machine(&without(&text, &[&secured[..], &mounted, &SERVICES].concat()))
}

/// The files for Kafka and Elasticsearch, in a manifest.
const SERVICES: [&str; 3] = ["- name: services", "mountPath: /etc/tallystone/services", "secret: {"];

/// A text without the lines that begin so.
fn without(text: &str, starts: &[&str]) -> String {
    let is_kept = |line: &&str| !starts.iter().any(|start| line.trim_start().starts_with(start));
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// The files of the Secrets, which are folders here: those of the processes, and those of Redis.
struct Secrets {
    of_processes: PathBuf,
    of_redis: PathBuf,
}

impl Secrets {
    /// As the steps of docs/deploy.md make them.
    async fn make(dir: &Path) -> Secrets {
        let secrets = Secrets { of_processes: dir.join("secrets"), of_redis: dir.join("redis") };
        for folder in [&secrets.of_processes, &secrets.of_redis] {
            std::fs::create_dir(folder).expect("a folder");
        }
        let ca = Ca::new(&secrets.of_processes, "ca");
        let names = ["tallystone", "tallystone-counters", "tallystone-views"].map(of);
        let names = names.each_ref().map(String::as_str);
        ca.server_of(&secrets.of_processes, &[&names[..], &["localhost", "127.0.0.1"]].concat());
        let redis = ca.server_of(&secrets.of_redis, &[&of("tallystone-redis")]);
        std::fs::rename(redis.certificate, secrets.of_redis.join("redis.crt")).expect("a file");
        std::fs::rename(redis.key, secrets.of_redis.join("redis.key")).expect("a file");
        std::fs::copy(&ca.file, secrets.of_redis.join("ca.pem")).expect("a file");
        // The block makes the folder of Redis's data and its configuration, too.
        let mut shell = Command::new("bash");
        shell.args(["-euc", &format!("umask 077\n{}", blocks("docs/deploy.md", "## 3. Redis")[0])]);
        let made = shell.env("REDIS_HOST", "unused").env("REDIS_PORT", "0").current_dir(dir).output();
        let made = made.expect("a shell");
        assert!(made.status.success(), "{made:?}");
        std::fs::rename(dir.join("users.acl"), secrets.of_redis.join("users.acl")).expect("a file");
        std::fs::rename(dir.join("redis.password"), secrets.of_processes.join("redis.password")).expect("a file");
        let mut principals = String::new();
        for (name, rights) in [
            ("operator", &["admin:*", "admin:rollup/*"][..]),
            ("counters", &["admin:rollup/*"]),
            ("views", &["count:*", "count-read:*", "count-admin:*"]),
            ("viewer", &["count:default"]),
        ] {
            let token = secrets.of_processes.join(format!("{name}.token"));
            let args = ["token", "new", "--name", name, "--out", token.to_str().expect("text")];
            let rights: Vec<&str> = rights.iter().flat_map(|right| ["--right", *right]).collect();
            let made = program::run(program::command(&[&args[..], &rights].concat()), "").await;
            assert_eq!(made.code, Some(0), "{made:?}");
            principals.push_str(&made.stdout);
        }
        std::fs::write(secrets.of_processes.join("principals.toml"), principals).expect("a file");
        // The user of the image, as with `fsGroup`.
        for entry in std::fs::read_dir(&secrets.of_processes).expect("a folder") {
            chown(entry.expect("an entry").path(), Some(7600), Some(7600)).expect("root runs the engine");
        }
        for folder in [dir, &secrets.of_processes, &secrets.of_redis] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("our folder");
        }
        secrets
    }
}

/// The manifests without history, with TLS and tokens.
fn secured(secrets: &Secrets) -> String {
    // Podman knows Secrets only in later versions. The mode of files from a ConfigMap would let everybody read the key.
    let folder = |line: &str| {
        if line.contains("secretName: tallystone,") {
            return Some(&secrets.of_processes);
        }
        line.contains("secretName: tallystone-redis,").then_some(&secrets.of_redis)
    };
    let text = ["secured.yaml", "redis.yaml", "tallystone.yaml", "views.yaml"].map(manifest).join("---\n");
    let with_files = text.lines().map(|line| match folder(line) {
        Some(folder) => format!("          hostPath: {{ path: {}, type: Directory }}\n", folder.display()),
        None => format!("{line}\n"),
    });
    on_one_machine(&without(&with_files.collect::<String>(), &SERVICES))
}

fn on_one_machine(text: &str) -> String {
    // Podman has no Services: the names are those of its pods.
    let text = text
        .replace("replicas: 2", "replicas: 1")
        .replace("redis://tallystone-redis:", &format!("redis://{}:", of("tallystone-redis")))
        .replace("rediss://tallystone-redis:", &format!("rediss://{}:", of("tallystone-redis")))
        .replace("http://tallystone:", &format!("http://{}:", of("tallystone")))
        .replace("http://tallystone-counters:", &format!("http://{}:", of("tallystone-counters")))
        .replace("image: tallystone\n", &format!("image: {}\n", image()))
        .replace("https://tallystone:", &format!("https://{}:", of("tallystone")))
        .replace("https://tallystone-counters:", &format!("https://{}:", of("tallystone-counters")))
        .replace("kind: StatefulSet", "kind: Deployment");
    // Its earlier versions publish each port of a container on the same port of the machine, unless one is named.
    let lines = text.lines().map(|line| match line.split_once("- containerPort: ") {
        Some((indent, _)) => format!("{line}\n{indent}  hostPort: {}\n", lasting_port()),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The port of this machine for that port of a container.
fn host_port(text: &str, container_port: u16) -> u16 {
    let begin = format!("- containerPort: {container_port}\n");
    let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no port {container_port}"));
    let port = rest.lines().next().and_then(|line| line.trim().strip_prefix("hostPort: ")).expect("it is published");
    port.parse().expect("a port")
}

/// The name of the pod of a deployment; before podman 4.4 it also has the number of the replica.
fn of(deployment: &str) -> String {
    static SUFFIX: LazyLock<&str> = LazyLock::new(|| {
        let version = podman(&["version", "--format", "{{.Client.Version}}"]);
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(4), Some(4)) { "-pod-0" } else { "-pod" }
    });
    format!("{deployment}{}", *SUFFIX)
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
    let _alone = PLAYING.lock().await;
    let network = Network::new("kube");
    let (kafka, elasticsearch) = (Container::kafka(&network), Container::elasticsearch(&network));
    let dir = TempDir::new().expect("a temporary folder");
    let names = ["redis.yaml", "views.yaml", "indexer.yaml", "ingest.yaml"];
    let played = Played::play(dir.path(), &network, &playable(&names, &kafka, Some(&elasticsearch)));
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
    let _alone = PLAYING.lock().await;
    let network = Network::new("kube");
    let dir = TempDir::new().expect("a temporary folder");
    let secrets = Secrets::make(dir.path()).await;
    let text = secured(&secrets);
    let _played = Played::play(dir.path(), &network, &text);
    let server = &format!("{}-server", of("tallystone"));
    let counters = format!("{}-counters", of("tallystone-counters"));
    let worker = format!("{}-rollup-worker", of("tallystone-rollup-worker"));
    let views = format!("{}-views", of("tallystone-views"));
    for (container, port) in [(server, "7600"), (&counters, "7610"), (&worker, "9640"), (&views, "7620")] {
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
    // The container has the token of its process.
    let anonymous = ["exec", server, "env", "-u", "TALLYSTONE_CLIENT_TOKEN_FILE", "tallystone", "queue", "ls"];
    for refused in [["--server", &url], ["--server", &url.replace("https", "http")]] {
        let ran = try_podman(&[&anonymous[..], &refused].concat());
        assert!(!ran.status.success(), "{refused:?}: {ran:?}");
    }
    // Redis serves no plain text, and nothing without a password.
    let redis = format!("{}-redis", of("tallystone-redis"));
    for options in [&[][..], &["--tls", "--insecure"]] {
        let ran = try_podman(&[&["exec", &redis, "redis-cli"][..], options, &["ping"]].concat());
        assert!(!String::from_utf8_lossy(&ran.stdout).contains("PONG"), "{options:?}: {ran:?}");
    }
    // The counters and the rollup worker have their token: an add is summed by a job of the queue.
    let url = format!("https://{}:7610", of("tallystone-counters"));
    let to_counters = [&["counter", "--counters", &url][..], &of_operator].concat();
    until_succeeds(server, &[&to_counters[..], &["namespace", "put", "default"]].concat()).await;
    until_succeeds(server, &[&to_counters[..], &["add", "visits", "3"]].concat()).await;
    until_answers(server, &[&to_counters[..], &["get", "visits"]].concat(), "3").await;
    // The view counter demands a token, and shows one to the counters.
    let url = format!("https://127.0.0.1:{}", host_port(&text, 7620));
    let read = |name: &str| std::fs::read_to_string(secrets.of_processes.join(name)).expect("a file");
    let viewer = read("viewer.token");
    for (token, status) in [(None, 401), (Some(viewer.trim()), 202)] {
        assert_eq!(post_view(&url, &read("ca.pem"), token).await, status, "{token:?}");
    }
    let get = ["get", "--namespace", "views-default", "cats"];
    until_answers(server, &[&to_counters[..], &get].concat(), "1").await;
}

/// Posts a view over TLS, and returns the status.
async fn post_view(url: &str, ca: &str, token: Option<&str>) -> u16 {
    let ca = reqwest::Certificate::from_pem(ca.as_bytes()).expect("PEM");
    let http = http_builder().add_root_certificate(ca).build().expect("a client");
    let view = r#"{"videoId":"cats","userId":"mia","timestamp":"2026-11-25T08:00:00Z"}"#;
    let request = http.post(format!("{url}/v1/views")).header("content-type", "application/json").body(view);
    let request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_manifest_of_views_in_kafka_counts_a_view() {
    let _alone = PLAYING.lock().await;
    let network = Network::new("kube");
    let (kafka, dir) = (Container::kafka(&network), TempDir::new().expect("a temporary folder"));
    let text = playable(&["redis.yaml", "views-kafka.yaml"], &kafka, None);
    let _played = Played::play(dir.path(), &network, &text);
    let server = &format!("{}-server", of("tallystone"));
    until_succeeds(server, &["health", "--port", "7600"]).await;
    // It starts when Kafka answers.
    let views = format!("{}-views", of("tallystone-views"));
    until_succeeds(&views, &["health", "--port", "7620"]).await;
    assert!(podman(&["exec", &views, "bash", "-c", POST_VIEW]).contains(" 202 "));
    let url = format!("http://{}:7610", of("tallystone-counters"));
    let get = ["counter", "--counters", &url, "get", "--namespace", "views-default", "cats"];
    until_answers(server, &get, "1").await;
}
