//! Kafka as a child process: one process that is broker and controller (KRaft).

use crate::LocalError;
use crate::child::{Launch, Readiness};
use crate::installed::{java, java_home, service};
use crate::lock::{lock, make_dir, unusable};
use crate::ports::{free_port_except, on_a_port};
use crate::running::Running;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

const SERVICE: &str = "kafka-4.1.0";
/// One JVM's start, on a machine that does much else.
const ANSWER_WAIT: Duration = Duration::from_secs(240);
const STOP_WAIT: Duration = Duration::from_secs(20);
/// Any 16 bytes; it never meets another cluster.
const CLUSTER_ID: &str = "dGFsbHlzdG9uZS1sb2NhbA";

/// What to start.
#[derive(Clone, Debug)]
pub struct PrivateKafkaOptions {
    /// Where its data, configuration, log (`kafka.log`) and lock live; made if it is not there.
    pub data_dir: PathBuf,
    /// Its port; `None`: a free one.
    pub port: Option<u16>,
    /// The most its Java heap may take.
    pub heap_mib: u32,
    /// More properties of the broker: `("log.retention.ms", "60000")`.
    pub properties: Vec<(String, String)>,
    /// More arguments of the format of a new data folder: `["--add-scram", "SCRAM-SHA-256=[name=u,password=p]"]`.
    pub format_args: Vec<String>,
}

impl PrivateKafkaOptions {
    /// The defaults, in this folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        PrivateKafkaOptions {
            data_dir: data_dir.into(),
            port: None,
            heap_mib: 256,
            properties: Vec::new(),
            format_args: Vec::new(),
        }
    }
}

/// The kind.
pub enum Kafka {}

/// A running Kafka. Dropping it stops it.
pub type PrivateKafka = Running<Kafka>;

impl PrivateKafka {
    /// Starts it and waits until it names itself as a broker.
    pub async fn start(options: PrivateKafkaOptions) -> Result<PrivateKafka, LocalError> {
        let (service, java_home) = (service(SERVICE)?, java_home()?);
        let dir = make_dir(&options.data_dir)?;
        let start = async |port: u16| {
            // Before anything is written: another may be running there.
            let lock = lock("kafka", &dir).await?;
            let controller_port = free_port_except(&[port]).map_err(unusable(&dir))?;
            configure(&options, &dir, port, controller_port).map_err(unusable(&dir))?;
            let java = Java {
                program: java(&java_home),
                libs: service.join("libs").join("*"),
                classes: service.join("classes.jsa"),
                dir: dir.clone(),
            };
            format(&java, &options.format_args).await?;
            let heap = format!("-Xmx{}m", options.heap_mib);
            let mut command = vec!["--".into(), java.program.clone().into_os_string()];
            command.extend(java.arguments(&[&heap, "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]));
            command.extend(["kafka.Kafka".into(), dir.join(CONFIG).into_os_string()]);
            let launch = Launch {
                name: "kafka",
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

const CONFIG: &str = "server.properties";
const DATA: &str = "data";
const LOGGING: &str = "log4j2.properties";

/// Writes its configuration; the ports may be others than last time.
fn configure(options: &PrivateKafkaOptions, dir: &Path, port: u16, controller_port: u16) -> io::Result<()> {
    let data = dir.join(DATA);
    let mut text = format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={}
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# How soon the transactions of a client that is gone end after their time; 10 s unless said otherwise.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
# One that was killed may come back only when it is taken for dead; 9 s unless said otherwise.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
# 128 MiB of the heap unless said otherwise; only internal topics are compacted here.
log.cleaner.dedupe.buffer.size=16777216
",
        data.display()
    );
    for (name, value) in &options.properties {
        let _ = writeln!(text, "{name}={value}");
    }
    std::fs::write(dir.join(CONFIG), text)?;
    let logging = "status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d{ISO8601}] %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
";
    std::fs::write(dir.join(LOGGING), logging)
}

/// How Kafka's programs are called.
struct Java {
    program: PathBuf,
    libs: PathBuf,
    /// Classes that the JVM maps instead of loading them, if it can use the file.
    classes: PathBuf,
    dir: PathBuf,
}

impl Java {
    /// Up to the name of the class.
    fn arguments(&self, options: &[&str]) -> Vec<OsString> {
        let logging = format!("-Dlog4j2.configurationFile={}", self.dir.join(LOGGING).display());
        let classes = self.classes.exists().then(|| format!("-XX:SharedArchiveFile={}", self.classes.display()).into());
        let options = options.iter().map(OsString::from).chain(classes);
        options.chain([logging.into(), "-cp".into(), self.libs.clone().into_os_string()]).collect()
    }
}

/// The files of a data folder that Kafka's tool has formatted without more arguments. All have the same, and so each further Kafka of this
/// process saves the start of a JVM.
static FORMAT: OnceCell<Vec<(OsString, Vec<u8>)>> = OnceCell::const_new();

/// Gives a new data folder its cluster id, once.
async fn format(java: &Java, more_args: &[String]) -> Result<(), LocalError> {
    let formatted = java.dir.join("formatted");
    if formatted.exists() {
        return Ok(());
    }
    if more_args.is_empty() {
        let data = java.dir.join(DATA);
        let make = async || {
            run_format(java, &[]).await?;
            read_files(&data).map_err(unusable(&java.dir))
        };
        let files = FORMAT.get_or_try_init(make).await?;
        write_files(&data, files).map_err(unusable(&java.dir))?;
    } else {
        run_format(java, more_args).await?;
    }
    std::fs::write(formatted, CLUSTER_ID).map_err(unusable(&java.dir))
}

fn read_files(dir: &Path) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let read = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name(), std::fs::read(entry.path())?))
    };
    std::fs::read_dir(dir)?.map(read).collect()
}

fn write_files(dir: &Path, files: &[(OsString, Vec<u8>)]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    files.iter().try_for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes))
}

async fn run_format(java: &Java, more_args: &[String]) -> Result<(), LocalError> {
    let mut command = tokio::process::Command::new(&java.program);
    command.args(java.arguments(&["-XX:TieredStopAtLevel=1"])).arg("kafka.tools.StorageTool");
    // Half done by one that was killed is done again.
    command.args(["format", "--ignore-formatted", "-t", CLUSTER_ID, "-c"]).arg(java.dir.join(CONFIG)).args(more_args);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(unusable(&java.dir))?;
    if !output.status.success() {
        let log_tail = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().replace('\n', " | ");
        return Err(LocalError::Exited { name: "kafka's format", status: output.status.to_string(), log_tail });
    }
    Ok(())
}

/// Whether the Kafka there knows itself as a broker that serves.
async fn probe(port: u16) -> Readiness {
    match tokio::time::timeout(Duration::from_secs(5), brokers(port)).await {
        Ok(Ok(1..)) => Readiness::Ready,
        _ => Readiness::None,
    }
}

/// A Metadata request, version 1, for no topic: how many brokers serve.
async fn brokers(port: u16) -> io::Result<i32> {
    const API_METADATA: i16 = 3;
    const VERSION: i16 = 1;
    const NO_CLIENT_ID: i16 = -1;
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let mut request = Vec::new();
    request.write_i16(API_METADATA).await?;
    request.write_i16(VERSION).await?;
    request.write_i32(1).await?;
    request.write_i16(NO_CLIENT_ID).await?;
    request.write_i32(0).await?;
    connection.write_i32(request.len() as i32).await?;
    connection.write_all(&request).await?;
    let _length = connection.read_i32().await?;
    let _correlation = connection.read_i32().await?;
    connection.read_i32().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_comes_back_on_its_port_with_its_data_after_a_stop_and_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateKafkaOptions::new(dir.path());
        let first = PrivateKafka::start(options.clone()).await.unwrap();
        let error = PrivateKafka::start(options.clone()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("process {}, port {}", first.pid(), first.port())), "{error}");
        let options = PrivateKafkaOptions { port: Some(first.port()), ..options };
        first.stop().await;
        assert!(brokers(options.port.unwrap()).await.is_err(), "it still answers");

        let second = PrivateKafka::start(options.clone()).await.unwrap();
        second.kill();
        second.ended().await;
        let third = PrivateKafka::start(options.clone()).await.unwrap();
        assert_eq!(third.address(), second.address());
        assert_ne!(third.pid(), second.pid());
    }

    #[tokio::test]
    async fn what_is_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let properties = vec![("log.retention.ms".to_owned(), "soon".to_owned())];
        let options = PrivateKafkaOptions { properties, ..PrivateKafkaOptions::new(dir.path()) };
        let error = PrivateKafka::start(options).await.unwrap_err().to_string();
        assert!(error.contains("log.retention.ms"), "{error}");
    }
}
