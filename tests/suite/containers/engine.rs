//! Podman, and what a test has made with it.

use crate::system::program::{self, SOON};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
        podman(&["network", "create", &name]);
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
        podman(&[&["run", "--detach", "--name", &name], options, &[image], command].concat());
        Container(name)
    }

    /// A Redis.
    pub(super) fn redis(network: &Network) -> Container {
        let policy = ["--maxmemory-policy", "noeviction", "--protected-mode", "no", "--bind", "0.0.0.0"];
        Container::run("redis", &["--network", &network.0], "redis:7", &[&DURABLE[..], &policy].concat())
    }

    /// A server on a Redis, and the address where it serves.
    pub(super) async fn server(networks: &[&Network], redis: &Container) -> (Container, String) {
        let networks = networks.iter().map(|network| network.0.as_str()).collect::<Vec<_>>().join(",");
        let variable = format!("TALLYSTONE_REDIS_URL=redis://{}:6379", redis.0);
        let options =
            ["--network", &networks, "--publish", "127.0.0.1::7600", "--env", &variable, "--restart", "always"];
        let command = ["server", "--listen", "0.0.0.0:7600", "--insecure"];
        let server = Container::run("server", &options, image(), &command);
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
