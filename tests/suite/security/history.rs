//! S6: Kafka by TLS with a user or a certificate, and Elasticsearch by TLS with a user or an API key.

use super::certificates::Ca;
use super::kafka_acls::Operation::{Describe, Read, Write};
use super::kafka_acls::Resource::{Group, Topic, TransactionalId};
use super::kafka_acls::{Acl, create_acls};
use super::secured::{Listening, Secured};
use super::secured_elasticsearch::{self, INDEX_PREFIX, User};
use super::secured_kafka::{PASSWORD, SecuredKafka};
use crate::ingest::topics::{Topics, Written, now_ms};
use crate::system::program::{self, Ended, Running, SOON, until};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig, NewMessage};
use tokio::time::Instant;

/// One that Elasticsearch does not know.
const API_KEY: &str = "UzNjcmV0UFc6a2V5";

/// The users of Elasticsearch. The first three have the rights that docs/operations/kafka-and-elasticsearch.md names, and the others one
/// right less.
const USERS: [User<'_>; 8] = [
    User("svc", INDEXER, &["manage", "read", "write"]),
    User("indexer", INDEXER, &["manage", "read", "write"]),
    User("server", &[], &["read"]),
    User("without-templates", &[], &["manage", "read", "write"]),
    User("without-manage", INDEXER, &["read", "write"]),
    User("without-read", INDEXER, &["manage", "write"]),
    User("without-write", INDEXER, &["manage", "read"]),
    User("server-without-read", &[], &["write"]),
];
const INDEXER: &[&str] = &["manage_index_templates"];

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

    /// An indexer that ends with this status, names what is wrong, and no secret.
    async fn ends(&self, args: &[&str], code: i32, words: &str) {
        let config = self.write();
        let args = [&["indexer", "--listen", "127.0.0.1:0", "--config", &config], args].concat();
        let ended = program::run(program::command(&args), "").await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        assert!(!ended.stderr.contains(PASSWORD) && !ended.stderr.contains(API_KEY), "{ended:?}");
    }

    /// An indexer that does not start, and names what is wrong.
    async fn is_refused(&self, words: &str) {
        self.ends(&[], 2, words).await;
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
        let traced = answered(indexer, &["msg", "trace", "q", id, "--json"]).await;
        if traced.code == Some(0) && traced.stdout.contains("enqueue") {
            return;
        }
        assert!(Instant::now() < give_up_at, "{id} is not in history: {traced:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// What a process answers to a command.
async fn answered(process: &Listening, args: &[&str]) -> Ended {
    let url = format!("http://{}", process.address);
    program::run(program::command(&[args, &["--server", &url]].concat()), "").await
}

/// Each command that reads history, through a server.
const READS: [&[&str]; 4] = [
    &["msg", "trace", "q", "with-few-rights", "--json"],
    &["msg", "search", "--queue", "q", "--json"],
    &["queue", "stats", "q", "--json"],
    &["history", "check", "--traces", "--json"],
];

/// A server, an indexer and ingest, each as a user with the rights that the documents name, and no others. The topics exist. `of_user` is the
/// configuration of a user, with the topic `t.few`.
async fn works_with_few_rights<'a>(place: &Secured, kafka: &SecuredKafka, of_user: impl Fn(&str) -> Sections<'a>) {
    let adds = Topics::create(kafka.plain.clone(), "rights", 1).await;
    let (source, group) = (adds.source.as_str(), adds.group());
    let [late, dead] = [adds.late(), adds.dead()];
    kafka.create_topics(&[("t.few", 2), ("t.few.dead", 1), (&late, 1), (&dead, 1)]).await;
    let (decided, transactions) = (format!("{group}.decided"), format!("{group}.*"));
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
        Acl("ingest", TransactionalId, &transactions, &[Write, Describe]),
    ];
    create_acls(&kafka.plain, &acls).await;
    until("the ACLs are in force", async || kafka.is_shown(place, "ingest", &dead).await).await;
    for (user, topic) in [("ingest", "t.few"), ("server", "t.few.dead"), ("indexer", source)] {
        assert!(!kafka.is_shown(place, user, topic).await, "{user} sees {topic}");
    }

    let (server, indexer) = (of_user("server").start("server").await, of_user("indexer").start("indexer").await);
    is_indexed(&server, &indexer, "with-few-rights").await;
    for read in READS {
        let ended = answered(&server, read).await;
        assert_eq!(ended.code, Some(0), "{read:?}: {ended:?}");
    }
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

/// Indexers and a server, each as a user of Elasticsearch that has one right less.
async fn fails_with_a_right_less<'a>(of_user: impl Fn(&'static str) -> Sections<'a>) {
    for User(user, ..) in USERS.iter().filter(|User(user, ..)| user.starts_with("without")) {
        // A separate group reads the topic from its beginning.
        let unauthorized = format!("is unauthorized for user [{user}]");
        of_user(user).ends(&["--group", user], 3, &unauthorized).await;
    }
    let server = of_user("server-without-read").start("server").await;
    for read in READS {
        let ended = answered(&server, read).await;
        assert!(ended.code != Some(0) && ended.stderr.contains("is unauthorized for user"), "{read:?}: {ended:?}");
    }
}

#[tokio::test]
async fn s6_history_goes_through_a_kafka_and_an_elasticsearch_that_demand_users() {
    let place = Secured::new().await;
    let (kafka, elasticsearch) =
        tokio::join!(SecuredKafka::start(&place), secured_elasticsearch::start(&place, &USERS));
    let [password, of_elastic] = ["password", "elastic"].map(|file| place.token_file(file, PASSWORD));
    let api_key = place.token_file("api-key", API_KEY);
    let ca = place.ca.file.to_str().expect("text").to_owned();
    let sasl = |mechanism: &str| {
        format!(
            "brokers = '{}'\nsecurity = 'sasl_ssl'\nsasl_mechanism = '{mechanism}'\nuser = 'svc'\n\
             password_file = '{password}'\nca_file = '{ca}'\ntopic = 't.{mechanism}'",
            kafka.sasl
        )
    };
    let elastic = |user: &str| {
        format!(
            "url = 'https://127.0.0.1:{}'\nca_file = '{ca}'\nindex_prefix = '{INDEX_PREFIX}'\nuser = '{user}'\n\
             password_file = '{of_elastic}'",
            elasticsearch.port()
        )
    };
    let good = Sections { place: &place, kafka: sasl("SCRAM-SHA-512"), elasticsearch: elastic("svc") };
    let (server, indexer) = (good.start("server").await, good.start("indexer").await);
    is_indexed(&server, &indexer, "by-scram").await;
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

    let few = |user: &str| {
        let kafka = sasl("PLAIN").replace("'svc'", &format!("'{user}'")).replace("t.PLAIN", "t.few");
        Sections { place: &place, kafka, elasticsearch: elastic(user) }
    };
    works_with_few_rights(&place, &kafka, few).await;
    let all_of_kafka = |user| Sections { place: &place, kafka: sasl("PLAIN"), elasticsearch: elastic(user) };
    fails_with_a_right_less(all_of_kafka).await;

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
    with(good_kafka.clone(), good_elastic.replace(&of_elastic, "/no/such"))
        .is_refused("elasticsearch.password_file")
        .await;
    let by_key = good_elastic.replace("user = 'svc'\npassword_file", "api_key_file");
    with(good_kafka.clone(), by_key.replace(&of_elastic, "/no/such")).is_refused("elasticsearch.api_key_file").await;
    let other = Ca::new(place.dir.path(), "other").file.display().to_string();
    with(good_kafka.replace(&ca, &other), good_elastic.clone()).logs("certificate verify failed").await;
    with(good_kafka.clone(), good_elastic.replace(&ca, &other)).logs("UnknownIssuer").await;
    with(good_kafka.clone(), by_key.replace(&of_elastic, &api_key)).logs("401").await;
    let wrong = place.token_file("wrong", "wrong");
    with(good_kafka.clone(), good_elastic.replace(&of_elastic, &wrong)).logs("401").await;
    with(good_kafka.replace(&password, &wrong), good_elastic).logs("uthentication").await;
}
