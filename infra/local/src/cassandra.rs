//! Cassandra as a child process: one node, without users, on 127.0.0.1. Only tests start it.

use crate::LocalError;
use crate::child::{Launch, Readiness};
use crate::installed::{cassandra, java, java_home};
use crate::lock::{lock, make_dir, unusable};
use crate::ports::{free_port_except, on_a_port};
use crate::running::Running;
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One JVM's start, on a machine that does much else.
const ANSWER_WAIT: Duration = Duration::from_secs(240);
const STOP_WAIT: Duration = Duration::from_secs(20);
/// How long one probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// The agent by which it measures its memory.
const AGENT: &str = "jamm-0.4.0.jar";
/// The packages of Java 17 that it uses without being allowed to: its list of options names these and more.
const EXPORTED: [&str; 8] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
const OPENED: [&str; 17] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

/// What to start.
#[derive(Clone, Debug)]
pub struct PrivateCassandraOptions {
    /// Where its data, configuration, log (`cassandra.log`) and lock live; made if it is not there.
    pub data_dir: PathBuf,
    /// Its port; `None`: a free one.
    pub port: Option<u16>,
    /// The most its Java heap may take.
    pub heap_mib: u32,
    /// Whether clients need a user. The first one is `cassandra`, with the password `cassandra`.
    pub has_users: bool,
}

impl PrivateCassandraOptions {
    /// The defaults, in this folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        PrivateCassandraOptions { data_dir: data_dir.into(), port: None, heap_mib: 384, has_users: false }
    }
}

/// The kind.
pub enum Cassandra {}

/// A running Cassandra. Dropping it stops it.
pub type PrivateCassandra = Running<Cassandra>;

impl PrivateCassandra {
    /// Starts it and waits until it answers clients.
    pub async fn start(options: PrivateCassandraOptions) -> Result<PrivateCassandra, LocalError> {
        let (service, java_home) = (cassandra()?, java_home()?);
        let dir = make_dir(&options.data_dir)?;
        let start = async |port: u16| {
            // Before anything is written: another may be running there.
            let lock = lock("cassandra", &dir).await?;
            let storage_port = free_port_except(&[port]).map_err(unusable(&dir))?;
            configure(&options, &dir, port, storage_port).map_err(unusable(&dir))?;
            let mut command = vec!["--".into(), java(&java_home).into_os_string()];
            command.extend(arguments(&options, &dir, &service.join("libs")));
            let launch = Launch {
                name: "cassandra",
                dir: dir.clone(),
                command,
                environment: Vec::new(),
                port,
                answer_wait: ANSWER_WAIT,
                stop_wait: STOP_WAIT,
                explain: |_, _| None,
            };
            Running::launch(launch, lock, async |_| probe(port).await).await
        };
        on_a_port(options.port, start, unusable(&dir)).await
    }

    /// Where it listens: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }
}

const CONFIG: &str = "cassandra.yaml";
const LOGGING: &str = "logback.xml";
const TEMPORARY: &str = "tmp";

/// Up to the name of the class, with it.
fn arguments(options: &PrivateCassandraOptions, dir: &Path, libs: &Path) -> Vec<OsString> {
    let heap_mib = options.heap_mib;
    let mut arguments: Vec<String> = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:MaxDirectMemorySize=128m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djdk.attach.allowAttachSelf=true",
        // From Java 18 on it would end without.
        "-Djava.security.manager=allow",
        // It is alone: there are no others to wait for.
        "-Dcassandra.ring_delay_ms=0",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.shutdown_announce_in_ms=0",
        "-Dcassandra.superuser_setup_delay_ms=0",
    ]
    .map(str::to_owned)
    .into();
    arguments.push(format!("-Xmx{heap_mib}m"));
    arguments.extend(EXPORTED.map(|package| format!("--add-exports={package}=ALL-UNNAMED")));
    arguments.extend(OPENED.map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
    arguments.push(format!("-javaagent:{}", libs.join(AGENT).display()));
    arguments.push(format!("-Dcassandra.config=file://{}", dir.join(CONFIG).display()));
    arguments.push(format!("-Dcassandra.storagedir={}", dir.display()));
    arguments.push(format!("-Dlogback.configurationFile={}", dir.join(LOGGING).display()));
    arguments.push(format!("-Djava.io.tmpdir={}", dir.join(TEMPORARY).display()));
    arguments.extend(["-cp".to_owned(), libs.join("*").display().to_string()]);
    arguments.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
    arguments.into_iter().map(OsString::from).collect()
}

/// Writes its configuration; the ports may be others than last time.
fn configure(options: &PrivateCassandraOptions, dir: &Path, port: u16, storage_port: u16) -> io::Result<()> {
    std::fs::create_dir_all(dir.join(TEMPORARY))?;
    let users = match options.has_users {
        true => "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n",
        false => "",
    };
    let text = format!(
        "cluster_name: tallystone
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: \"127.0.0.1:{storage_port}\"
listen_address: 127.0.0.1
storage_port: {storage_port}
rpc_address: 127.0.0.1
start_native_transport: true
native_transport_port: {port}
data_file_directories: [ \"{data}\" ]
commitlog_directory: \"{commit_log}\"
saved_caches_directory: \"{saved_caches}\"
hints_directory: \"{hints}\"
cdc_raw_directory: \"{changes}\"
# What it has acknowledged survives a kill.
commitlog_sync: group
commitlog_sync_group_window: 1ms
commitlog_segment_size: 16MiB
commitlog_total_space: 256MiB
memtable_allocation_type: heap_buffers
file_cache_size: 32MiB
networking_cache_size: 16MiB
auto_snapshot: false
disk_failure_policy: die
commit_failure_policy: die
{users}",
        data = dir.join("data").display(),
        commit_log = dir.join("commitlog").display(),
        saved_caches = dir.join("saved_caches").display(),
        hints = dir.join("hints").display(),
        changes = dir.join("cdc_raw").display(),
    );
    std::fs::write(dir.join(CONFIG), text)?;
    let logging = "<configuration>
  <appender name=\"console\" class=\"ch.qos.logback.core.ConsoleAppender\">
    <encoder><pattern>[%d{ISO8601}] %p %logger{1} %msg%n</pattern></encoder>
  </appender>
  <root level=\"WARN\"><appender-ref ref=\"console\"/></root>
</configuration>
";
    std::fs::write(dir.join(LOGGING), logging)
}

/// Whether it answers clients.
async fn probe(port: u16) -> Readiness {
    match tokio::time::timeout(PROBE_WAIT, options(port)).await {
        Ok(Ok(SUPPORTED)) => Readiness::Ready,
        _ => Readiness::None,
    }
}

/// The answer to OPTIONS.
const SUPPORTED: u8 = 6;

/// An OPTIONS request, version 4: the kind of the answer.
async fn options(port: u16) -> io::Result<u8> {
    const VERSION: u8 = 4;
    const OPTIONS: u8 = 5;
    const HEADER_BYTES: usize = 9;
    const KIND: usize = 4;
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let mut header = [0; HEADER_BYTES];
    (header[0], header[KIND]) = (VERSION, OPTIONS);
    connection.write_all(&header).await?;
    connection.read_exact(&mut header).await?;
    Ok(header[KIND])
}
