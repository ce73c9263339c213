//! S6: Kafka by TLS with a user or a certificate, and Elasticsearch by TLS with an API key.

use super::certificates::{Ca, Files};
use super::kafka_acls::Operation::{Describe, Read, Write};
use super::kafka_acls::Resource::{Group, Topic, TransactionalIds};
use super::kafka_acls::{Acl, create_acls};
use super::secured::{Listening, Secured};
use crate::ingest::topics::{Topics, Written, now_ms};
use crate::system::program::{self, Running, SOON, until};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig, NewMessage};
use tallystone_local::{PrivateKafka, PrivateKafkaOptions};
use tallystone_tests::{TestElasticsearch, lasting_port};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const PASSWORD: &str = "S3cretPW";
const API_KEY: &str = "UzNjcmV0UFc6a2V5";

/// A Kafka with three ports: one for the test, one for users by TLS, one for certificates. The callers of the first, the user `svc` and
/// the certificate of `tallystone` may do everything, others what ACLs allow.
struct SecuredKafka {
    _kafka: PrivateKafka,
    plain: String,
    sasl: String,
    certificates: String,
}

async fn kafka(place: &Secured) -> SecuredKafka {
    let [plain, sasl, certificates, controller] = [(); 4].map(|()| lasting_port());
    let text = |path: &Path| path.display().to_string();
    let keystore = place.dir.path().join("kafka.pem");
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a file");
    std::fs::write(&keystore, read(&place.server.key) + &read(&place.server.certificate)).expect("a file");
    let listeners =
        format!("PLAINTEXT://127.0.0.1:{plain},USERS://127.0.0.1:{sasl},CERTIFICATES://127.0.0.1:{certificates}");
    let users = ["svc", "server", "indexer", "ingest"].map(|user| format!(" user_{user}=\"{PASSWORD}\"")).concat();
    let module = format!("org.apache.kafka.common.security.plain.PlainLoginModule required{users};");
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let properties = [
        ("controller.quorum.voters", format!("1@127.0.0.1:{controller}")),
        ("listeners", format!("{listeners},CONTROLLER://127.0.0.1:{controller}")),
        ("advertised.listeners", listeners),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_SSL,CERTIFICATES:SSL".to_owned(),
        ),
        ("ssl.keystore.type", "PEM".to_owned()),
        ("ssl.keystore.location", text(&keystore)),
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", text(&place.ca.file)),
        ("listener.name.certificates.ssl.client.auth", "required".to_owned()),
        ("listener.name.users.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512".to_owned()),
        ("listener.name.users.plain.sasl.jaas.config", module),
        ("listener.name.users.scram-sha-512.sasl.jaas.config", scram.to_owned()),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned()),
        // The broker and the controller are anonymous to each other, too.
        ("super.users", "User:ANONYMOUS;User:svc;User:CN=tallystone".to_owned()),
    ];
    let kafka = PrivateKafka::start(PrivateKafkaOptions {
        port: Some(plain),
        properties: properties.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        format_args: vec!["--add-scram".to_owned(), format!("SCRAM-SHA-512=[name=svc,password={PASSWORD}]")],
        ..PrivateKafkaOptions::new(place.dir.path().join("kafka"))
    });
    let at = |port| format!("127.0.0.1:{port}");
    let (plain, sasl, certificates) = (at(plain), at(sasl), at(certificates));
    SecuredKafka { _kafka: kafka.await.expect("a Kafka"), plain, sasl, certificates }
}

/// In front of an Elasticsearch without security: ends TLS, and demands the API key of the first request of each connection.
struct Gate {
    url: String,
    admitted: Arc<AtomicUsize>,
}

impl Gate {
    async fn open(files: &Files, elasticsearch: String) -> Gate {
        let chain = CertificateDer::pem_file_iter(&files.certificate).expect("PEM").map(|one| one.expect("PEM"));
        let key = PrivateKeyDer::from_pem_file(&files.key).expect("PEM");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain.collect(), key);
        let acceptor = TlsAcceptor::from(Arc::new(config.expect("a certificate")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let admitted = Arc::new(AtomicUsize::new(0));
        let target = elasticsearch.trim_start_matches("http://").trim_end_matches('/').to_owned();
        tokio::spawn({
            let admitted = admitted.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, target, admitted) = (acceptor.clone(), target.clone(), admitted.clone());
                    tokio::spawn(async move {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            let _ = forward(stream, &target, &admitted).await;
                        }
                    });
                }
            }
        });
        Gate { url, admitted }
    }
}

async fn forward(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    target: &str,
    admitted: &AtomicUsize,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let has_key = String::from_utf8_lossy(&head).lines().any(|line| {
        let header = line.split_once(": ");
        header.is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("authorization") && value == format!("ApiKey {API_KEY}")
        })
    });
    if !has_key {
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await?;
        return stream.shutdown().await;
    }
    admitted.fetch_add(1, Ordering::SeqCst);
    let mut inner = TcpStream::connect(target).await?;
    inner.write_all(&head).await?;
    copy_bidirectional(&mut stream, &mut inner).await.map(drop)
}

/// The sections of the configuration.
struct Sections<'a> {
    place: &'a Secured,
    kafka: String,
    elasticsearch: String,
}

impl Sections<'_> {
    fn write(&self) -> String {
        let path = self.place.path("t.toml");
        let text =
            format!("[kafka]\npartitions = 2\n{}\n[elasticsearch]\nreplicas = 0\n{}\n", self.kafka, self.elasticsearch);
        std::fs::write(&path, text).expect("a file");
        path
    }

    async fn start(&self, verb: &str) -> Listening {
        let config = self.write();
        match verb {
            "server" => self.place.start("server", &["--config", &config]).await,
            verb => self.place.start_with(verb, &["--config", &config]).await,
        }
    }

    /// An indexer that does not start, and names what is wrong.
    async fn is_refused(&self, words: &str) {
        let config = self.write();
        let ended =
            program::run(program::command(&["indexer", "--listen", "127.0.0.1:0", "--config", &config]), "").await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        assert!(!ended.stderr.contains(PASSWORD) && !ended.stderr.contains(API_KEY), "{ended:?}");
    }

    /// An indexer whose log has these words, and no secret.
    async fn logs(&self, words: &str) {
        let config = self.write();
        let mut indexer = Running::start_logged(program::command(&[
            "indexer",
            "--log",
            "info",
            "--listen",
            "127.0.0.1:0",
            "--config",
            &config,
        ]));
        let found = async {
            loop {
                let line = indexer.line().await;
                assert!(!line.contains(PASSWORD) && !line.contains(API_KEY), "{line}");
                if line.contains(words) {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, found).await.unwrap_or_else(|_| panic!("no line has {words:?}"));
        indexer.kill().await;
    }
}

/// Enqueues a message through a server, and waits until the history that an indexer has written has it.
async fn is_indexed(server: &Listening, indexer: &Listening, id: &str) {
    server.client("unused").enqueue("q", vec![NewMessage::new(id, "payload")]).await.expect("an Enqueue")[0]
        .as_ref()
        .expect("a message");
    let give_up_at = Instant::now() + SOON;
    loop {
        let url = format!("http://{}", indexer.address);
        let traced = program::run(program::command(&["msg", "trace", "q", id, "--json", "--server", &url]), "").await;
        if traced.code == Some(0) && traced.stdout.contains("enqueue") {
            return;
        }
        assert!(Instant::now() < give_up_at, "{id} is not in history: {traced:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Creates topics, each with so many partitions.
async fn create_topics<'a>(broker: &str, topics: &[(&'a str, i32)]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", broker).create().expect("a client");
    let of = |(name, partitions): &(&'a str, i32)| NewTopic::new(name, *partitions, TopicReplication::Fixed(1));
    let topics: Vec<NewTopic<'a>> = topics.iter().map(of).collect();
    for created in admin.create_topics(&topics, &AdminOptions::new()).await.expect("an answer") {
        created.expect("a topic");
    }
}

/// Whether Kafka shows this topic to this user.
async fn is_shown(place: &Secured, kafka: &SecuredKafka, user: &str, topic: &str) -> bool {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &kafka.sasl).set("ssl.ca.location", place.ca.file.to_str().expect("text"));
    config.set("security.protocol", "sasl_ssl").set("sasl.mechanism", "PLAIN");
    config.set("sasl.username", user).set("sasl.password", PASSWORD);
    let (client, topic): (BaseConsumer, _) = (config.create().expect("a client"), topic.to_owned());
    let described = tokio::task::spawn_blocking(move || {
        let metadata = client.fetch_metadata(Some(&topic), SOON).expect("an answer");
        metadata.topics()[0].error().is_none()
    });
    described.await.expect("no panic")
}

/// A server, an indexer and ingest, each as a user with the rights that the documents name, and no others. The topics exist. `of_user` is the
/// configuration of a user, with the topic `t.few`.
async fn works_with_few_rights<'a>(place: &Secured, kafka: &SecuredKafka, of_user: impl Fn(&str) -> Sections<'a>) {
    let adds = Topics::create(kafka.plain.clone(), "rights", 1).await;
    let (source, group) = (adds.source.as_str(), adds.group());
    let [late, dead] = [adds.late(), adds.dead()];
    create_topics(&kafka.plain, &[("t.few", 2), ("t.few.dead", 1), (&late, 1), (&dead, 1)]).await;
    let (decided, transactions) = (format!("{group}.decided"), format!("{group}."));
    let acls = [
        // As docs/operations/kafka-and-elasticsearch.md.
        Acl("server", Topic, "t.few", &[Write, Describe]),
        Acl("indexer", Topic, "t.few", &[Read, Describe]),
        Acl("indexer", Group, "tallystone-indexer", &[Read]),
        Acl("indexer", Topic, "t.few.dead", &[Write, Describe]),
        // As docs/ingest.md.
        Acl("ingest", Topic, source, &[Read, Describe]),
        Acl("ingest", Topic, &late, &[Read, Write, Describe]),
        Acl("ingest", Topic, &dead, &[Write, Describe]),
        Acl("ingest", Group, &group, &[Read]),
        Acl("ingest", Group, &decided, &[Read]),
        Acl("ingest", TransactionalIds, &transactions, &[Write, Describe]),
    ];
    create_acls(&kafka.plain, &acls).await;
    until("the ACLs are in force", async || is_shown(place, kafka, "ingest", &dead).await).await;
    for (user, topic) in [("ingest", "t.few"), ("server", "t.few.dead"), ("indexer", source)] {
        assert!(!is_shown(place, kafka, user, topic).await, "{user} sees {topic}");
    }

    let (server, indexer) = (of_user("server").start("server").await, of_user("indexer").start("indexer").await);
    is_indexed(&server, &indexer, "with-few-rights").await;
    drop((server, indexer));

    let counters = place.start("counters", &["--server", "http://127.0.0.1:1"]).await;
    let url = format!("http://{}", counters.address);
    let counting = CounterClient::connect(&url).await.expect("the counters");
    let (counter_type, accept_limit_ms) = (Some(CounterType::Accurate), Some(60_000));
    let namespace = NamespaceConfig { counter_type, accept_limit_ms, ..NamespaceConfig::default() };
    counting.put_namespace("few", namespace).await.expect("a namespace");
    let config = of_user("ingest").write();
    let args = ["--config", &config, "--topic", source, "--group", &group, "--namespace", "few", "--counters", &url];
    let _ingest = place.start_with("ingest", &args).await;
    // One at its time, one that is late, and a dead letter.
    let bad = Written { value: "no add".to_owned(), ..Written::add(0, now_ms(), "c", 1) };
    adds.write(&[Written::add(0, now_ms(), "c", 2), Written::late(0, "c", 3), bad]).await;
    until("both adds have counted", async || counting.get("few", "c").await.is_ok_and(|count| count.count == 5)).await;
    until("each record is decided", async || adds.are_decided().await).await;
}

#[tokio::test]
async fn s6_history_goes_through_a_kafka_and_an_elasticsearch_that_demand_users() {
    let place = Secured::new().await;
    let (kafka, elasticsearch) = tokio::join!(kafka(&place), TestElasticsearch::shared());
    let gate = Gate::open(&place.server, elasticsearch.address()).await;
    let (password, api_key) = (place.token_file("password", PASSWORD), place.token_file("api-key", API_KEY));
    let ca = place.ca.file.to_str().expect("text").to_owned();
    let sasl = |mechanism: &str| {
        format!(
            "brokers = '{}'\nsecurity = 'sasl_ssl'\nsasl_mechanism = '{mechanism}'\nuser = 'svc'\n\
             password_file = '{password}'\nca_file = '{ca}'\ntopic = 't.{mechanism}'",
            kafka.sasl
        )
    };
    let index = format!("s6-{}", std::process::id());
    let key = format!("url = '{}'\napi_key_file = '{api_key}'\nca_file = '{ca}'\nindex_prefix = '{index}'", gate.url);
    let good = Sections { place: &place, kafka: sasl("SCRAM-SHA-512"), elasticsearch: key };
    let (server, indexer) = (good.start("server").await, good.start("indexer").await);
    is_indexed(&server, &indexer, "by-scram").await;
    assert!(gate.admitted.load(Ordering::SeqCst) > 0);
    drop((server, indexer));

    let plain = Sections { kafka: sasl("PLAIN"), elasticsearch: good.elasticsearch.clone(), ..good };
    let (server, indexer) = (plain.start("server").await, plain.start("indexer").await);
    is_indexed(&server, &indexer, "by-plain").await;
    drop((server, indexer));

    // A certificate in the place of a user.
    let client = place.ca.client(place.dir.path(), "tallystone", "");
    let [certificate, private_key] = [&client.certificate, &client.key].map(|path| path.display().to_string());
    let certificates = |file: &str| {
        format!(
            "brokers = '{}'\nsecurity = 'ssl'\nca_file = '{file}'\ncert_file = '{certificate}'\n\
             key_file = '{private_key}'\ntopic = 't.certificates'",
            kafka.certificates
        )
    };
    let shown = Sections { kafka: certificates(&ca), elasticsearch: plain.elasticsearch.clone(), ..plain };
    let (server, indexer) = (shown.start("server").await, shown.start("indexer").await);
    is_indexed(&server, &indexer, "by-certificate").await;
    drop((server, indexer));

    let elasticsearch = &shown.elasticsearch;
    let few = |user: &str| {
        let kafka = sasl("PLAIN").replace("'svc'", &format!("'{user}'")).replace("t.PLAIN", "t.few");
        Sections { place: &place, kafka, elasticsearch: elasticsearch.clone() }
    };
    works_with_few_rights(&place, &kafka, few).await;

    // What does not fit is named at the start, what the other side refuses in the log.
    let with = |kafka: String, elasticsearch: String| Sections { place: &place, kafka, elasticsearch };
    let (good_kafka, good_elastic) = (sasl("PLAIN"), shown.elasticsearch.clone());
    with(good_kafka.replace("user = 'svc'\n", ""), good_elastic.clone()).is_refused("kafka.user").await;
    with(good_kafka.replace(&ca, "/no/such.pem"), good_elastic.clone()).is_refused("kafka.ca_file").await;
    with(good_kafka.replace(&password, "/no/such"), good_elastic.clone()).is_refused("kafka.password_file").await;
    with(good_kafka.replace("sasl_ssl", "tls"), good_elastic.clone()).is_refused("kafka.security").await;
    with(good_kafka.clone(), good_elastic.replace("https://", "https://svc:S3cretPW@"))
        .is_refused("elasticsearch.user")
        .await;
    with(good_kafka.clone(), good_elastic.replace(&api_key, "/no/such")).is_refused("elasticsearch.api_key_file").await;
    let other = Ca::new(place.dir.path(), "other").file.display().to_string();
    with(good_kafka.replace(&ca, &other), good_elastic.clone()).logs("certificate verify failed").await;
    with(good_kafka.clone(), good_elastic.replace(&ca, &other)).logs("UnknownIssuer").await;
    std::fs::write(&api_key, "b3RoZXI=").expect("a file");
    with(good_kafka.clone(), good_elastic).logs("401").await;
    std::fs::write(&password, "wrong").expect("a file");
    with(good_kafka, shown.elasticsearch.clone()).logs("uthentication").await;
}
