//! O3: what probes get from every port of every verb.

use super::certificates::Ca;
use super::secured::{Listening, Secured};
use super::tls::{VERBS, listen_flags, start};
use crate::crash::machines::Redis;
use crate::ingest::topics::Topics;
use crate::system::program;
use std::net::SocketAddr;
use tallystone_tests::{Network, TestElasticsearch, TestKafka, http_client};

/// The ports of a program that answer probes.
fn ports(verb: &str, program: &Listening) -> Vec<SocketAddr> {
    [program.metrics, program.address].into_iter().take(listen_flags(verb).len()).collect()
}

async fn status(port: SocketAddr, path: &str) -> u16 {
    let http = http_client();
    http.get(format!("http://{port}{path}")).send().await.expect("an answer").status().as_u16()
}

/// Waits until every port of a program answers so to `/readyz`. All of them answer that the process lives.
async fn until_ready(ready: u16, verb: &str, program: &Listening) {
    for port in ports(verb, program) {
        let what = format!("{verb} at {port}: /readyz is {ready}");
        program::until(&what, async || status(port, "/readyz").await == ready).await;
        assert_eq!(status(port, "/livez").await, 200, "{verb} at {port}");
    }
}

#[tokio::test]
async fn o3_every_port_of_every_verb_answers_probes_and_has_no_unknown_path() {
    for verb in VERBS {
        let place = Secured::new().await;
        let program = start(&place, verb, &[]).await;
        for port in ports(verb.0, &program) {
            assert_eq!(status(port, "/livez").await, 200, "{verb:?} at {port}");
            for unknown in ["/", "/nothing", "/livez/", "/readyz/x"] {
                // The counters have a page.
                if (verb.0, unknown) != ("counters", "/") {
                    assert_eq!(status(port, unknown).await, 404, "{verb:?} at {port}: {unknown}");
                }
            }
        }
    }
}

/// Each is ready first: a process that has not yet tried to reach its stores is not ready either, so the test would
/// prove nothing.
#[tokio::test]
async fn o3_every_port_of_a_process_is_ready_with_its_redis_and_its_queue_and_not_without() {
    let (place, mut redis) = (Secured::new().await, Redis::start().await);
    let url = redis.url();
    let of_redis = ["--allow-volatile", "--redis-url", &url];
    let server = place.start_with("server", &of_redis).await;
    let counters = place.start_with("counters", &of_redis).await;
    let queue = format!("http://{}", server.address);
    let worker = place.start_with("rollup-worker", &[&of_redis[..], &["--server", &queue]].concat()).await;
    let all = [("server", &server), ("counters", &counters), ("rollup-worker", &worker)];
    for (verb, program) in all {
        until_ready(200, verb, program).await;
    }
    redis.kill().await;
    for (verb, program) in all {
        until_ready(503, verb, program).await;
    }
    redis.restart().await;
    for (verb, program) in all {
        until_ready(200, verb, program).await;
    }
    server.process.kill().await;
    until_ready(503, "rollup-worker", &worker).await;
    until_ready(200, "counters", &counters).await;
}

#[tokio::test]
async fn o3_every_port_of_a_process_is_ready_with_its_kafka_and_its_elasticsearch_and_not_without() {
    let (kafka, elasticsearch) = tokio::join!(TestKafka::shared(), TestElasticsearch::shared());
    let (place, network) = (Secured::new().await, Network::to(&elasticsearch.address()).await);
    let (brokers, search) = (kafka.address(), network.url());
    let topics = Topics::create(brokers.clone(), "ports", 1).await;
    let name = format!("ports-{:08x}", rand::random::<u32>());
    let config = place.path("t.toml");
    let text = format!(
        "[kafka]\nbrokers = '{brokers}'\ntopic = '{name}'\npartitions = 1\n[indexer]\ngroup = '{name}'\n\
         [elasticsearch]\nurl = '{search}'\nindex_prefix = '{name}'\nreplicas = 0\n"
    );
    std::fs::write(&config, text).expect("a file");
    let indexer = place.start_with("indexer", &["--config", &config]).await;
    let group = topics.group();
    let adds = ["--topic", topics.source.as_str(), "--group", &group, "--counters", "http://127.0.0.1:1"];
    let ingest = place.start_with("ingest", &[&["--config", &config], &adds[..]].concat()).await;
    until_ready(200, "indexer", &indexer).await;
    // Without counters it is ready until there is an add.
    until_ready(200, "ingest", &ingest).await;
    network.shut();
    until_ready(503, "indexer", &indexer).await;
    network.open();
    until_ready(200, "indexer", &indexer).await;
}

#[tokio::test]
async fn o3_a_probe_of_a_port_needs_to_know_neither_tls_nor_the_name_of_the_certificate() {
    let place = Secured::new().await;
    let client_ca = Ca::new(place.dir.path(), "clients");
    let probe = async |port: u16, more: &[&str]| {
        let port = port.to_string();
        program::run(program::command(&[&["health", "--port", &port], more].concat()), "").await
    };
    let (plain, encrypted) = (place.start("server", &[]).await, place.start("server", &place.tls()).await);
    for port in [plain.address, plain.metrics, encrypted.address, encrypted.metrics].map(|address| address.port()) {
        for more in [&[][..], &["--live"][..]] {
            let ended = probe(port, more).await;
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "serving\n"), "{ended:?}");
        }
    }
    let mut flags = place.tls();
    flags.extend(["--tls-client-ca", client_ca.file.to_str().expect("text")]);
    let closed = place.start("server", &flags).await;
    let refused = probe(closed.address.port(), &[]).await;
    assert!(refused.code == Some(3) && refused.stderr.to_lowercase().contains("certificate"), "{refused:?}");
    let files = client_ca.client(place.dir.path(), "probe", "");
    let shown = [files.certificate, files.key].map(|path| path.to_str().expect("text").to_owned());
    let ended = probe(closed.address.port(), &["--cert", &shown[0], "--key", &shown[1]]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let nothing = probe(1, &[]).await;
    assert!(nothing.code == Some(3) && nothing.stderr.contains("port 1 of this machine"), "{nothing:?}");
}
