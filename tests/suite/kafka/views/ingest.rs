//! As `views::ingest`, with the log in Kafka.

use super::life::PARTITIONS;
use super::stage::Stage;
use crate::crash::life::{self, Life};
use crate::views::ingest::{Round, STEPS, ends_at, serve};
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_kafka::KafkaOptions;
use tallystone_tests::TestKafka;
use tallystone_views::kafka::KafkaLog;
use tallystone_views::{ViewService, ViewsConfig};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn accepts_until_it_comes_to_its_end() {
    let Some(([brokers, topic, counters_url, port, step], its_end)) = life::arguments() else { return };
    let options = KafkaOptions { brokers, ..KafkaOptions::default() };
    let log = KafkaLog::connect(&options, &topic, PARTITIONS).await.expect("a log");
    let counters = CounterClient::builder(counters_url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
    let log = log.observed_by(ends_at(step, its_end));
    let (views, _, _) = ViewService::start_on_kafka(&config, log, &counters);
    serve(views, &port).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_v3_a_process_that_accepts_views_for_kafka_may_die_at_any_step() {
    let mut stage = Stage::start(TestKafka::shared().await, "ingest", 2, "").await;
    let (brokers, topic) = (stage.topics.brokers.clone(), stage.topics.source.clone());
    let counters = stage.counters.url();
    let start = |port: u16, step: &str| {
        let arguments = [&brokers, &topic, &counters, &*port.to_string(), step];
        Life::start("kafka::views::ingest::accepts_until_it_comes_to_its_end", Signal::SIGKILL, &arguments)
    };
    let mut round = Round::default();
    for step in STEPS {
        round.dies_at(step, start).await;
    }
    stage.add_views().await;
    round.is_exact_after_repetition(&stage.http(0), stage.has_counted_all(0, "end")).await;
}
