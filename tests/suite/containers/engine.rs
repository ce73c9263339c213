//! Podman, and what a test has made with it.

use crate::system::program::{self, SOON};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_local::{Elasticsearch, Kafka};
use tallystone_tests::container::ContainerOptions;
use tallystone_tests::service::Service;
use tokio::time::{Instant, sleep};

/// By which `./test` finds what a killed test has left.
const LABEL: &str = "tallystone-test";
/// Of Redis, as the documents want it.
const DURABLE: [&str; 7] = ["redis-server", "--appendonly", "yes", "--appendfsync", "always", "--save", ""];

/// Runs podman; it must succeed. Returns what it prints.
pub(super) fn podman(args: &[&str]) -> String {
    let ran = try_podman(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(ran.status.success(), "podman {args:?}: {}", text(&ran.stderr));
    text(&ran.stdout)
}

/// Runs podman.
pub(super) fn try_podman(args: &[&str]) -> Output {
    Command::new("podman").args(args).output().expect("podman: scripts/containers.sh installs it")
}

/// The image of the program under test, made once.
pub(super) fn image() -> &'static str {
    static BUILT: Once = Once::new();
    const NAME: &str = "localhost/tallystone-under-test";
    BUILT.call_once(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/image.sh");
        let built = Command::new(script).arg(NAME).env("TALLYSTONE_PROGRAM", program::path()).output();
        let built = built.expect("a script");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    });
    NAME
}

/// Adds a record to a topic of the Kafka in a container.
pub(super) fn produce(kafka: &str, topic: &str, record: &str) {
    let script = format!(
        "echo '{record}' | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server localhost:9092 --topic {topic}"
    );
    podman(&["exec", kafka, "bash", "-c", &script]);
}

/// A name that no other test has.
pub(super) fn unique(what: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("ts-{what}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A network; dropping it removes it.
pub(super) struct Network(pub(super) String);

impl Network {
    pub(super) fn new(what: &str) -> Network {
        let name = unique(what);
        podman(&["network", "create", "--label", LABEL, &name]);
        Network(name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        try_podman(&["network", "rm", "--force", &self.0]);
    }
}

/// A container; dropping it removes it.
pub(super) struct Container(pub(super) String);

impl Container {
    /// Starts it with these options of `podman run`, the image, and the command.
    pub(super) fn run(what: &str, options: &[&str], image: &str, command: &[&str]) -> Container {
        let name = unique(what);
        podman(&[&["run", "--detach", "--label", LABEL, "--name", &name], options, &[image], command].concat());
        Container(name)
    }

    /// A Redis.
    pub(super) fn redis(network: &Network) -> Container {
        Container::redis_with(network, &[])
    }

    /// A Redis with more arguments.
    pub(super) fn redis_with(network: &Network, more: &[&str]) -> Container {
        let policy = ["--maxmemory-policy", "noeviction", "--protected-mode", "no", "--bind", "0.0.0.0"];
        Container::run("redis", &["--network", &network.0], "redis:7", &[&DURABLE[..], &policy, more].concat())
    }

    /// Its address in a network.
    pub(super) fn address(&self, network: &Network) -> String {
        let format = format!("{{{{(index .NetworkSettings.Networks \"{}\").IPAddress}}}}", network.0);
        podman(&["inspect", "--format", &format, &self.0])
    }

    /// A Kafka that its name reaches, on port 9092.
    pub(super) fn kafka(network: &Network) -> Container {
        let name = unique("kafka");
        let listener = |environment: &mut Vec<(&'static str, String)>| {
            environment.retain(|(variable, _)| *variable != "KAFKA_ADVERTISED_LISTENERS");
            environment.push(("KAFKA_ADVERTISED_LISTENERS", format!("PLAINTEXT://{name}:9092")));
        };
        Container::service(&name, network, Kafka::container(0), listener)
    }

    /// An Elasticsearch that its name reaches, on port 9200.
    pub(super) fn elasticsearch(network: &Network) -> Container {
        Container::service(&unique("elasticsearch"), network, Elasticsearch::container(0), |_| {})
    }

    /// A service of tests in a network, without a port of this machine.
    fn service(
        name: &str,
        network: &Network,
        options: ContainerOptions,
        change: impl FnOnce(&mut Vec<(&'static str, String)>),
    ) -> Container {
        let ContainerOptions { image: (image, tag), mut environment, .. } = options;
        change(&mut environment);
        let variables: Vec<_> = environment.iter().map(|(variable, value)| format!("{variable}={value}")).collect();
        let variables: Vec<_> = variables.iter().flat_map(|variable| ["--env", variable]).collect();
        let start = ["run", "--detach", "--label", LABEL, "--name", name, "--network", &network.0];
        podman(&[&start[..], &variables, &[&format!("{image}:{tag}")]].concat());
        Container(name.to_owned())
    }

    /// Creates a topic of this Kafka.
    pub(super) fn create_topic(&self, topic: &str) {
        let script = "/opt/kafka/bin/kafka-topics.sh";
        podman(&["exec", &self.0, script, "--bootstrap-server", "localhost:9092", "--create", "--topic", topic]);
    }

    /// Adds a record to a topic of this Kafka.
    pub(super) fn produce(&self, topic: &str, record: &str) {
        produce(&self.0, topic, record);
    }

    /// A server on a Redis, and the address where it serves.
    pub(super) async fn server(networks: &[&Network], redis: &Container) -> (Container, String) {
        Container::server_with(networks, &format!("redis://{}:6379", redis.0), &[]).await
    }

    /// A server on the store of this address, with more options of `podman run`.
    pub(super) async fn server_with(networks: &[&Network], store: &str, more: &[&str]) -> (Container, String) {
        let networks = networks.iter().map(|network| network.0.as_str()).collect::<Vec<_>>().join(",");
        let variable = format!("TALLYSTONE_REDIS_URL={store}");
        let options =
            ["--network", &networks, "--publish", "127.0.0.1::7600", "--env", &variable, "--restart", "always"];
        let command = ["server", "--listen", "0.0.0.0:7600", "--insecure"];
        let server = Container::run("server", &[&options, more].concat(), image(), &command);
        // Until Redis answers, it ends and is started again.
        server.is_healthy().await;
        let address = podman(&["port", &server.0, "7600/tcp"]);
        (server, format!("http://{address}"))
    }

    /// Waits until its health check succeeds.
    pub(super) async fn is_healthy(&self) {
        self.has_health(true).await;
    }

    /// Waits until its health check fails.
    pub(super) async fn is_unhealthy(&self) {
        self.has_health(false).await;
    }

    async fn has_health(&self, is_healthy: bool) {
        let give_up_at = Instant::now() + SOON;
        while try_podman(&["healthcheck", "run", &self.0]).status.success() != is_healthy {
            assert!(Instant::now() < give_up_at, "healthy: {}, {}", !is_healthy, self.logs());
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) fn logs(&self) -> String {
        let logs = try_podman(&["logs", &self.0]);
        String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()).into_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        try_podman(&["rm", "--force", "--volumes", "--time", "1", &self.0]);
    }
}
