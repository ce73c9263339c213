//! A password in an address or in a property of Kafka appears in no output, whichever error it provokes.

use crate::system::program::{self, Ended, Running};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_tests::{lasting_port, patient_connection};
use tempfile::TempDir;

/// In every place that takes a secret, and in no output.
const MARKER: &str = "S3cretPW";

/// A run with a secret in it.
#[derive(Debug, Default)]
struct Case<'a> {
    args: Vec<&'a str>,
    variables: Vec<(&'a str, &'a str)>,
    file: Option<&'a str>,
}

impl<'a> Case<'a> {
    fn flags(args: &[&'a str]) -> Case<'a> {
        Case { args: args.to_vec(), ..Case::default() }
    }

    fn variable(args: &[&'a str], name: &'a str, value: &'a str) -> Case<'a> {
        Case { variables: vec![(name, value)], ..Case::flags(args) }
    }

    fn file(args: &[&'a str], text: &'a str) -> Case<'a> {
        Case { file: Some(text), ..Case::flags(args) }
    }

    /// Runs it to its end, which must be an error that does not have the marker.
    async fn is_refused_quietly(&self) {
        assert!(format!("{self:?}").contains(MARKER), "{self:?}");
        let dir = TempDir::new().expect("a temporary folder");
        let path = dir.path().join("t.toml");
        for json in [false, true] {
            let mut command = program::command(&self.args);
            if let Some(text) = self.file {
                std::fs::write(&path, text).expect("a file");
                command.arg("--config").arg(&path);
            }
            if json {
                command.arg("--json");
            }
            command.envs(self.variables.iter().copied());
            let ended = program::run(command, "").await;
            assert_ne!(ended.code, Some(0), "{self:?}: {ended:?}");
            assert!(ended.stderr.contains("error"), "{self:?}: {ended:?}");
            self.assert_hidden(&ended);
        }
    }

    fn assert_hidden(&self, ended: &Ended) {
        assert!(!ended.stdout.contains(MARKER) && !ended.stderr.contains(MARKER), "{self:?}: {ended:#?}");
    }
}

/// Addresses of a Redis that is unavailable, and what is no address.
const REDIS: &[&str] = &[
    "redis://svc:S3cretPW@127.0.0.1:1",
    "redis://:S3cretPW@127.0.0.1:1/7",
    "redis://svc:no/S3cretPW@127.0.0.1:1",
    "rediss://svc:S3cretPW@127.0.0.1:1",
    "redis://:S3cretPW",
    "svc:S3cretPW@127.0.0.1:1",
    "http://svc:S3cretPW@127.0.0.1:1",
    "redis+unix:///no/such/socket?pass=S3cretPW",
];

/// Addresses of a server that is unavailable, and what is no address of one.
const SERVERS: &[&str] = &[
    "http://svc:S3cretPW@127.0.0.1:1",
    "https://svc:S3cretPW@127.0.0.1:1",
    "svc:S3cretPW@127.0.0.1:1",
    "http://svc:S3cretPW@:1:1",
];

#[tokio::test]
async fn s6_errors_do_not_show_the_password_of_redis() {
    for url in REDIS {
        Case::flags(&["server", "--listen", "127.0.0.1:0", "--redis-url", url]).is_refused_quietly().await;
        Case::variable(&["counters", "--listen", "127.0.0.1:0"], "TALLYSTONE_REDIS_URL", url)
            .is_refused_quietly()
            .await;
        let file = format!("[redis]\nurl = '{url}'");
        Case::file(&["rollup-worker"], &file).is_refused_quietly().await;
        Case::flags(&["store", "accept", "--yes", "--redis-url", url]).is_refused_quietly().await;
        // In a wrong place only a URL is recognized.
        if url.contains("://") {
            Case::flags(&["server", url]).is_refused_quietly().await;
            Case::flags(&["server", "--listen", url]).is_refused_quietly().await;
        }
    }
    for file in [
        "[redis]\nurl = redis://svc:S3cretPW@127.0.0.1",
        "[redis]\nurl = 'redis://svc:S3cretPW@127.0.0.1",
        "[redis]\nurl = ['redis://svc:S3cretPW@127.0.0.1']",
        "[redis]\npassword = 'S3cretPW'",
        "redis_url = 'redis://svc:S3cretPW@127.0.0.1'",
        "[server]\nlisten = 'redis://svc:S3cretPW@127.0.0.1'",
    ] {
        Case::file(&["server"], file).is_refused_quietly().await;
    }
}

#[tokio::test]
async fn s6_errors_do_not_show_the_password_of_a_server() {
    for url in SERVERS {
        Case::flags(&["queue", "ls", "--server", url]).is_refused_quietly().await;
        Case::variable(&["queue", "ls"], "TALLYSTONE_SERVER", url).is_refused_quietly().await;
        Case::flags(&["rollup-worker", "--server", url]).is_refused_quietly().await;
        Case::variable(&["counters"], "TALLYSTONE_COUNTERS_QUEUE_URL", url).is_refused_quietly().await;
        Case::flags(&["counter", "--counters", url, "get", "c"]).is_refused_quietly().await;
        Case::variable(&["counter", "get", "c"], "TALLYSTONE_COUNTERS", url).is_refused_quietly().await;
    }
}

#[tokio::test]
async fn s6_errors_do_not_show_the_secrets_of_history() {
    for url in [
        "svc:S3cretPW@es:9200",
        "ftp://svc:S3cretPW@es:9200",
        "http://svc:S3cretPW@es:99999",
        "https://svc:S3cretPW@es:1",
    ] {
        Case::flags(&["indexer", "--kafka-brokers", "127.0.0.1:1", "--elasticsearch-url", url])
            .is_refused_quietly()
            .await;
        Case::variable(&["server"], "TALLYSTONE_ELASTICSEARCH_URL", url).is_refused_quietly().await;
    }
    for brokers in
        ["svc:S3cretPW@k:9092", "kafka://svc:S3cretPW@k:9092", "http://svc:S3cretPW@k:9092", "S3cretPW@k:9092"]
    {
        Case::flags(&["server", "--kafka-brokers", brokers]).is_refused_quietly().await;
    }
    let indexer = ["indexer", "--listen", "127.0.0.1:0", "--kafka-brokers", "127.0.0.1:1"];
    let indexer = [&indexer[..], &["--elasticsearch-url", "http://127.0.0.1:1"]].concat();
    for properties in [
        "sasl.password=S3cretPW",
        "['S3cretPW']",
        "['sasl.password: S3cretPW=']",
        "['security.protocol=S3cretPW']",
        "['linger.ms=S3cretPW']",
        "['sasl.pasword=S3cretPW']",
        "['sasl.password=S3cretPW', 'acks=0']",
        "['ssl.key.password=S3cretPW', 'ssl.key.location=/no/such/file', 'security.protocol=ssl']",
        "['ssl.key.pem=S3cretPW', 'security.protocol=ssl']",
    ] {
        let properties = properties.replace('\'', "\"");
        Case::variable(&indexer, "TALLYSTONE_KAFKA_PROPERTIES", &properties).is_refused_quietly().await;
        let quoted = if properties.starts_with('[') { properties.clone() } else { format!("{properties:?}") };
        let file = format!("[kafka]\nproperties = {quoted}");
        Case::file(&indexer, &file).is_refused_quietly().await;
    }
}

#[tokio::test]
async fn s6_errors_do_not_show_the_passwords_in_other_addresses() {
    const SERVER: [&str; 3] = ["server", "--listen", "127.0.0.1:0"];
    const COUNTERS: [&str; 5] = ["counters", "--listen", "127.0.0.1:0", "--redis-url", "redis://127.0.0.1:1"];
    for url in [
        "redis-sentinel://svc:S3cretPW@127.0.0.1:1/0#primary",
        "rediss-sentinel://svc:S3cretPW@127.0.0.1:1/0#primary",
        "redis-cluster://svc:S3cretPW@127.0.0.1:1",
        "redis-cluster://svc:S3cretPW@127.0.0.1:1,127.0.0.1:2",
    ] {
        Case::flags(&[&SERVER[..], &["--redis-url", url]].concat()).is_refused_quietly().await;
        Case::flags(&["counter", "namespace", "republish", "n", "--compact-url", url]).is_refused_quietly().await;
        Case::file(&COUNTERS, &format!("[compact]\nurl = '{url}'")).is_refused_quietly().await;
    }
    for url in SERVERS {
        Case::flags(&[&SERVER[..], &["--otlp-endpoint", url]].concat()).is_refused_quietly().await;
        Case::file(&SERVER, &format!("[telemetry]\notlp_endpoint = '{url}'")).is_refused_quietly().await;
        Case::flags(&["views", "--listen", "127.0.0.1:0", "--counters", url]).is_refused_quietly().await;
        let ingest = ["ingest", "--listen", "127.0.0.1:0", "--kafka-brokers", "127.0.0.1:1", "--topic", "t"];
        Case::flags(&[&ingest[..], &["--counters", url]].concat()).is_refused_quietly().await;
        Case::file(&SERVER, &format!("[jwt]\nkeys_url = '{url}'\nissuer = 'i'\naudience = 'a'"))
            .is_refused_quietly()
            .await;
    }
    for url in ["cassandra://svc:S3cretPW@127.0.0.1:1/k", "svc:S3cretPW@bucket", "http://svc:S3cretPW@127.0.0.1:1/k"] {
        Case::file(&COUNTERS, &format!("[archive]\nurl = '{url}'")).is_refused_quietly().await;
    }
}

/// The logs at their most detailed level, the metrics and the help.
#[tokio::test]
async fn s6_a_running_server_does_not_show_its_passwords() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let client = redis::Client::open(redis.url()).expect("a URL");
    let mut connection = patient_connection(&client).await.expect("a connection");
    let acl = ["SETUSER", "svc", "on", ">S3cretPW", "~*", "&*", "+@all"];
    let () = redis::cmd("ACL").arg(&acl).query_async(&mut connection).await.expect("a user");
    let url = redis.url().replace("://", "://svc:S3cretPW@");
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let mut command = program::command(&["server", "--log", "trace", "--listen", "127.0.0.1:0"]);
    command.args(["--redis-url", &url, "--metrics-listen", &metrics]);
    let secret = |name: &str| {
        let path = dir.path().join(name);
        super::certificates::write_private(&path, MARKER);
        path
    };
    command.args(["--elasticsearch-url", "http://127.0.0.1:1"]);
    command.env("TALLYSTONE_ELASTICSEARCH_API_KEY_FILE", secret("api-key"));
    command.args(["--kafka-brokers", "127.0.0.1:1"]);
    command.env("TALLYSTONE_KAFKA_PROPERTIES", r#"["debug=all"]"#);
    command.env("TALLYSTONE_KAFKA_PASSWORD_FILE", secret("kafka-password")).env("TALLYSTONE_KAFKA_USER", "svc");
    command.env("TALLYSTONE_KAFKA_SECURITY", "sasl_ssl").env("TALLYSTONE_KAFKA_SASL_MECHANISM", "PLAIN");
    let mut server = Running::start_logged(command);
    let mut serves = false;
    while !serves {
        let line = server.line().await;
        assert!(!line.contains(MARKER), "{line}");
        serves = line.contains("serving");
    }
    let page = program::metrics_page(&metrics).await;
    assert!(page.contains("tallystone") && !page.contains(MARKER), "{page}");
    // The attempts to reach Kafka.
    for _ in 0..100 {
        let line = server.line().await;
        assert!(!line.contains(MARKER), "{line}");
    }
    server.kill().await;
    redis.stop().await;

    let mut command = program::command(&["server", "--help"]);
    command.env("TALLYSTONE_REDIS_URL", &url).env("TALLYSTONE_SERVER", "http://svc:S3cretPW@127.0.0.1:1");
    let ended = program::run(command, "").await;
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stdout.contains(MARKER), "{ended:?}");
}
