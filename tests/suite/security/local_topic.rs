//! Local counters whose pushes go through a Kafka that demands users (L2).

use super::kafka_acls::Operation::{Describe, Read, Write};
use super::kafka_acls::Resource::{Group, Topic, TransactionalId};
use super::kafka_acls::{Acl, create_acls};
use super::secured::Secured;
use super::secured_kafka::{PASSWORD, SecuredKafka};
use crate::ingest::topics::Topics;
use crate::system::program::until;
use tallystone_client::local::{LocalCounters, LocalOptions, TopicOptions};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_pushes_go_through_a_kafka_with_the_rights_that_the_documents_name_and_no_others() {
    let place = Secured::new().await;
    let kafka = SecuredKafka::start(&place).await;
    let adds = Topics::create(kafka.plain.clone(), "local-rights", 2).await;
    let (source, group) = (adds.source.as_str(), adds.group());
    let service = place.start("counters", &["--server", "http://127.0.0.1:1"]).await;
    let url = format!("http://{}", service.address);
    let client = CounterClient::connect(&url).await.expect("the counters");
    let namespace = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace("few", namespace).await.expect("a namespace");
    let args = ["--kafka-brokers", &kafka.plain, "--topic", source, "--group", &group, "--counters", &url];
    let _ingest = place.start_with("ingest", &args).await;

    let mut topic = TopicOptions::new(&kafka.sasl, source);
    let properties = [
        ("security.protocol", "sasl_ssl"),
        ("ssl.ca.location", place.ca.file.to_str().expect("text")),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "local"),
        ("sasl.password", PASSWORD),
    ];
    topic.properties.extend(properties.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let counters = LocalCounters::open_with_topic(place.path("local"), client.clone(), topic, LocalOptions::default());
    let counters = counters.await.expect("a new folder");
    counters.counter("few", "c").expect("room").add(5);
    // As docs/local-counters.md. Each is granted when a push without it has failed.
    let acls = [
        ("Transactional Id", Acl("local", TransactionalId, "tallystone-local.*", &[Write, Describe])),
        ("Group", Acl("local", Group, "tallystone-local.*", &[Read, Describe])),
        ("Topic", Acl("local", Topic, source, &[Read])),
        ("Topic", Acl("local", Topic, source, &[Write, Describe])),
    ];
    for (what, acl) in acls {
        let is_refused = async || {
            let error = counters.push().await.expect_err("a right is missing").to_string();
            assert!(!error.contains(PASSWORD), "{error}");
            error.contains(&format!("{what} authorization failed"))
        };
        until(&format!("a refusal because of {what}"), is_refused).await;
        create_acls(&kafka.plain, &[acl]).await;
    }
    until("a push", async || counters.push().await.is_ok()).await;
    assert!(counters.unresolved().expect("a file").is_empty());
    until("it has counted", async || client.get("few", "c").await.is_ok_and(|count| count.count == 5)).await;
    counters.close().await.expect("nothing is left");
}
