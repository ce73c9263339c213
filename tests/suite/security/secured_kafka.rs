//! A Kafka that demands users or certificates, and knows ACLs.

use super::secured::Secured;
use crate::system::program::SOON;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::path::{Path, PathBuf};
use tallystone_local::{PrivateKafka, PrivateKafkaOptions};
use tallystone_tests::lasting_port;

/// The password of each user.
pub(super) const PASSWORD: &str = "S3cretPW";

/// A Kafka with three ports: one for the test, one for users by TLS, one for certificates. The callers of the first, the user `svc` and
/// the certificate of `tallystone` may do everything, others what ACLs allow.
pub(super) struct SecuredKafka {
    _kafka: PrivateKafka,
    pub(super) plain: String,
    pub(super) sasl: String,
    pub(super) certificates: String,
}

impl SecuredKafka {
    pub(super) async fn start(place: &Secured) -> SecuredKafka {
        let [plain, sasl, certificates, controller] = [(); 4].map(|()| lasting_port());
        let text = |path: &Path| path.display().to_string();
        let keystore = place.dir.path().join("kafka.pem");
        let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a file");
        std::fs::write(&keystore, read(&place.server.key) + &read(&place.server.certificate)).expect("a file");
        let listeners =
            format!("PLAINTEXT://127.0.0.1:{plain},USERS://127.0.0.1:{sasl},CERTIFICATES://127.0.0.1:{certificates}");
        let users =
            ["svc", "server", "indexer", "ingest", "local"].map(|user| format!(" user_{user}=\"{PASSWORD}\"")).concat();
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

    /// Creates topics, each with so many partitions.
    pub(super) async fn create_topics<'a>(&self, topics: &[(&'a str, i32)]) {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.plain).create().expect("a client");
        let of = |(name, partitions): &(&'a str, i32)| NewTopic::new(name, *partitions, TopicReplication::Fixed(1));
        let topics: Vec<NewTopic<'a>> = topics.iter().map(of).collect();
        for created in admin.create_topics(&topics, &AdminOptions::new()).await.expect("an answer") {
            created.expect("a topic");
        }
    }

    /// Whether Kafka shows this topic to this user.
    pub(super) async fn is_shown(&self, place: &Secured, user: &str, topic: &str) -> bool {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.sasl).set("ssl.ca.location", place.ca.file.to_str().expect("text"));
        config.set("security.protocol", "sasl_ssl").set("sasl.mechanism", "PLAIN");
        config.set("sasl.username", user).set("sasl.password", PASSWORD);
        let (client, topic): (BaseConsumer, _) = (config.create().expect("a client"), topic.to_owned());
        let described = tokio::task::spawn_blocking(move || {
            let metadata = client.fetch_metadata(Some(&topic), SOON).expect("an answer");
            metadata.topics()[0].error().is_none()
        });
        described.await.expect("no panic")
    }
}
