//! Elasticsearch as a child process: one node on 127.0.0.1, without security if no setting demands it.
//!
//! It refuses to run as root. Where we do, it gets another user's id, and root's one capability that it needs to
//! reach its data and programs wherever they are, even in a home folder that other users may not enter.

use crate::LocalError;
use crate::child::{Launch, Readiness};
use crate::installed::{java_home, service};
use crate::lock::{lock, make_dir, unusable};
use crate::ports::{free_port_except, on_a_port};
use crate::running::Running;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::net::TcpStream;

const SERVICE: &str = "elasticsearch-8.19.21";
/// Two JVMs' start, on a machine that does much else, and the log of what was not yet on the disk.
const ANSWER_WAIT: Duration = Duration::from_secs(300);
const STOP_WAIT: Duration = Duration::from_secs(30);
/// The user and group `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

/// What to start.
#[derive(Clone, Debug)]
pub struct PrivateElasticsearchOptions {
    /// Where its data, configuration, log (`elasticsearch.log`) and lock live; made if it is not there.
    pub data_dir: PathBuf,
    /// Its port; `None`: a free one.
    pub port: Option<u16>,
    /// Its Java heap.
    pub heap_mib: u32,
    /// Settings of the node, in the place of the default ones: `("http.max_content_length", "10mb")`.
    pub settings: Vec<(String, String)>,
    /// Files for its configuration folder, by name: of certificates and of users, which the settings name.
    pub files: Vec<(String, String)>,
}

impl PrivateElasticsearchOptions {
    /// The defaults, in this folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let (settings, files) = (Vec::new(), Vec::new());
        PrivateElasticsearchOptions { data_dir: data_dir.into(), port: None, heap_mib: 512, settings, files }
    }
}

/// The kind.
pub enum Elasticsearch {}

/// A running Elasticsearch. Dropping it stops it.
pub type PrivateElasticsearch = Running<Elasticsearch>;

impl PrivateElasticsearch {
    /// Starts it and waits until every index that it has can be written and searched.
    pub async fn start(options: PrivateElasticsearchOptions) -> Result<PrivateElasticsearch, LocalError> {
        let (service, java_home) = (service(SERVICE)?, java_home()?);
        let dir = make_dir(&options.data_dir)?;
        let start = async |port: u16| {
            // Before anything is written: another may be running there.
            let lock = lock("elasticsearch", &dir).await?;
            let transport_port = free_port_except(&[port]).map_err(unusable(&dir))?;
            configure(&options, &dir, port, transport_port).map_err(unusable(&dir))?;
            let mut command = other_user();
            command.extend(["--".into(), service.join("bin/elasticsearch").into_os_string()]);
            let launch = Launch {
                name: "elasticsearch",
                dir: dir.clone(),
                command,
                environment: vec![
                    ("ES_JAVA_HOME", java_home.clone().into_os_string()),
                    ("ES_PATH_CONF", dir.join(CONFIG).into_os_string()),
                    ("ES_TMPDIR", dir.join(TEMPORARY).into_os_string()),
                    ("ES_JAVA_OPTS", OsString::new()),
                ],
                port,
                answer_wait: ANSWER_WAIT,
                stop_wait: STOP_WAIT,
                explain: |_, _| None,
            };
            let is_secured = options.settings.iter().any(|(name, value)| name == SECURITY && value == "true");
            Running::launch(launch, lock, async |_| probe(port, is_secured).await).await
        };
        on_a_port(options.port, start, unusable(&dir)).await
    }

    /// Where it listens: `http://127.0.0.1:PORT`. Settings may have given the port TLS.
    pub fn url(&self) -> String {
        url(self.port())
    }
}

/// The setting that demands users.
const SECURITY: &str = "xpack.security.enabled";
const CONFIG: &str = "config";
const TEMPORARY: &str = "tmp";

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Options of setpriv that make root another user.
fn other_user() -> Vec<OsString> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let id = NOBODY.to_string();
    // Java checks with the kernel whether it may read a file; without the first of these the kernel ignores the
    // capability.
    ["--securebits", "+no_setuid_fixup", "--reuid", &id, "--regid", &id, "--clear-groups"]
        .into_iter()
        .chain(["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"])
        .map(OsString::from)
        .collect()
}

/// Writes its configuration; the ports may be others than last time.
fn configure(options: &PrivateElasticsearchOptions, dir: &Path, port: u16, transport_port: u16) -> io::Result<()> {
    let (config, data) = (dir.join(CONFIG), dir.join("data"));
    for folder in [&config, &data, &dir.join(TEMPORARY), &dir.join("logs")] {
        std::fs::create_dir_all(folder)?;
        if geteuid().is_root() {
            chown(folder, Some(NOBODY), Some(NOBODY))?;
        }
    }
    // The node refuses a setting that it finds twice.
    let mut settings = BTreeMap::from(
        [
            ("cluster.name", "tallystone".to_owned()),
            ("discovery.type", "single-node".to_owned()),
            ("network.host", "127.0.0.1".to_owned()),
            ("http.port", port.to_string()),
            ("transport.port", transport_port.to_string()),
            ("path.data", data.display().to_string()),
            ("path.logs", dir.join("logs").display().to_string()),
            (SECURITY, "false".to_owned()),
            // A disk of this machine that is nearly full must not make indices read-only.
            ("cluster.routing.allocation.disk.threshold_enabled", "false".to_owned()),
            // Real memory counts the garbage that the serial collector has not come to yet: requests would be refused for it.
            ("indices.breaker.total.use_real_memory", "false".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    settings.extend(options.settings.iter().cloned());
    let text: String = settings.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    std::fs::write(config.join("elasticsearch.yml"), text)?;
    for (name, text) in &options.files {
        std::fs::write(config.join(name), text)?;
    }
    let heap_mib = options.heap_mib;
    let jvm = format!(
        "-Xms{heap_mib}m
-Xmx{heap_mib}m
-XX:+UseSerialGC
-XX:-AlwaysPreTouch
-XX:+ExitOnOutOfMemoryError
-Djava.io.tmpdir=${{ES_TMPDIR}}
"
    );
    std::fs::write(config.join("jvm.options"), jvm)?;
    let logging = "status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d{ISO8601}] %p %c{1.} %m%consoleException%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.checks.name=org.elasticsearch.bootstrap.BootstrapChecks
logger.checks.level=error
logger.telemetry.name=io.opentelemetry.usage
logger.telemetry.level=error
";
    std::fs::write(config.join("log4j2.properties"), logging)
}

/// The HTTP client of all polls: some features of its crate make a new one read all CAs of the system. It keeps no connection, which
/// would belong to the runtime of one poll.
static CLIENT: LazyLock<Option<reqwest::Client>> = LazyLock::new(|| {
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(Duration::from_secs(5)).build().ok()
});

/// Whether every shard there is serves. A node with users answers no stranger, so all that it shows is its port, which it opens once it has
/// started.
async fn probe(port: u16, is_secured: bool) -> Readiness {
    if is_secured {
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        return if connected.is_ok() { Readiness::Ready } else { Readiness::None };
    }
    let health = format!("{}/_cluster/health?wait_for_status=yellow&timeout=1s", url(port));
    let Some(client) = &*CLIENT else { return Readiness::None };
    match client.get(health).send().await {
        Ok(response) if response.status().is_success() => Readiness::Ready,
        // It answers 408 while it recovers what was not yet on the disk.
        Ok(_) => Readiness::Loading,
        Err(_) => Readiness::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(request: reqwest::RequestBuilder) -> String {
        let response = request.send().await.unwrap().error_for_status().unwrap();
        response.text().await.unwrap()
    }

    #[tokio::test]
    async fn what_was_acknowledged_survives_a_stop_and_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateElasticsearchOptions::new(dir.path());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut node = PrivateElasticsearch::start(options.clone()).await.unwrap();
        let options = PrivateElasticsearchOptions { port: Some(node.port()), ..options };
        let document = format!("{}/kept/_doc/1", node.url());
        let put = |value: u32| {
            let request = client.put(&document).header("content-type", "application/json");
            send(request.body(format!("{{\"value\":{value}}}")))
        };
        put(1).await;
        node.stop().await;
        assert!(client.get(&document).send().await.is_err(), "it still answers");

        node = PrivateElasticsearch::start(options.clone()).await.unwrap();
        assert!(send(client.get(&document)).await.contains("\"value\":1"));
        put(2).await;
        node.kill();
        node.ended().await;
        assert!(client.get(&document).send().await.is_err(), "the node outlived its watcher");

        let node = PrivateElasticsearch::start(options).await.unwrap();
        assert!(send(client.get(&document)).await.contains("\"value\":2"));
        drop(node);
    }

    #[tokio::test]
    async fn what_is_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let settings = vec![("no.such.setting".to_owned(), "1".to_owned())];
        let options = PrivateElasticsearchOptions { settings, ..PrivateElasticsearchOptions::new(dir.path()) };
        let error = PrivateElasticsearch::start(options).await.unwrap_err().to_string();
        assert!(error.contains("no.such.setting"), "{error}");
    }
}
