//! What real processes export on `/metrics`: HELP for every series, and each metric that dashboards and alerts name.

use super::indexer::Indexer;
use crate::crash::machines::Server;
use crate::ingest::topics::Topics;
use crate::security::certificates::Ca;
use crate::system::program::{self, Running, SOON, metrics_page};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tallystone_client::{Cancellation, Client, CounterClient, NamespaceConfig, NewAdd, NewMessage, QueueConfig};
use tallystone_tests::{TestElasticsearch, TestKafka, TestRedis, http_builder, lasting_port};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// What one page says of its metrics.
#[derive(Default)]
struct Page {
    help: BTreeMap<String, String>,
    kinds: BTreeMap<String, String>,
    /// The names of all series, without the endings of histograms.
    series: BTreeSet<String>,
}

impl Page {
    fn read(text: &str) -> Page {
        let mut page = Page::default();
        let word = |rest: &str| {
            let (name, value) = rest.split_once(' ').expect("a name and a text");
            (name.to_owned(), value.to_owned())
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                page.help.extend([word(rest)]);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                page.kinds.extend([word(rest)]);
            } else {
                let name = line.split(['{', ' ']).next().expect("a name");
                let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
                let whole = parts.into_iter().find(|whole| page.kinds.contains_key(*whole));
                page.series.insert(whole.unwrap_or(name).to_owned());
            }
        }
        page
    }

    /// Where it departs from the conventions of Prometheus.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for name in &self.series {
            let mut fault = |why: &str| faults.push(format!("{name}: {why}"));
            if self.help.get(name).is_none_or(|help| help.trim().is_empty()) {
                fault("has no HELP");
            }
            if !name.starts_with("tallystone_") || name.chars().any(|c| !(c.is_ascii_lowercase() || c == '_')) {
                fault("is not named tallystone_…, in lower case");
            }
            let kind = self.kinds.get(name).map_or("", String::as_str);
            if (kind == "counter") != name.ends_with("_total") {
                fault(&format!("is a {kind}; the names of counters, and no others, end with _total"));
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                fault(&format!("is a {kind}, which no query can sum up over processes"));
            }
            let base = name.strip_suffix("_total").unwrap_or(name);
            for unit in ["_seconds", "_bytes", "_ratio"] {
                if base.contains(unit) && !base.ends_with(unit) {
                    fault(&format!("ends with another word than its unit, {unit}"));
                }
            }
        }
        faults
    }
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The metrics that a file names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
    let metrics = words.filter(|word| word.starts_with("tallystone_") && !word.contains('-'));
    metrics.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

/// Every process of an installation, in use.
struct Installation {
    _servers: [Server; 5],
    _rollup_worker: Running,
    _indexer: Indexer,
    /// The addresses of their metrics: server, counters, ingest, rollup worker, indexer, views in Kafka, views. The last one has TLS.
    metrics: [String; 7],
    ca: Ca,
    _dir: TempDir,
    _services: (std::sync::Arc<TestKafka>, std::sync::Arc<TestElasticsearch>, TestRedis),
}

impl Installation {
    async fn start() -> Installation {
        let (kafka, elasticsearch) = tokio::join!(TestKafka::shared(), TestElasticsearch::shared());
        let redis = TestRedis::start().await;
        let (url, name) = (redis.url(), format!("exported-{:08x}", rand::random::<u32>()));
        let [queue, counters, ingest, worker, in_kafka, views] =
            [(); 6].map(|()| format!("127.0.0.1:{}", lasting_port()));
        let dir = TempDir::new().expect("a temporary folder");
        let config = dir.path().join("tallystone.toml");
        let kafka_section = format!("[kafka]\nbrokers = \"{}\"\ntopic = \"{name}\"\n", kafka.address());
        let search = format!(
            "[elasticsearch]\nurl = \"{}\"\nindex_prefix = \"{name}\"\nreplicas = 0\n",
            elasticsearch.address()
        );
        let audit = format!("[audit]\nfile = \"{}\"\n", dir.path().join("audit.log").display());
        let disk = format!(
            "[redis]\ndata_dir = \"{}\"\ndisk_free_min_bytes = 1\ndisk_free_min_percent = 0\n",
            dir.path().display()
        );
        let tenants = "[[tenants]]\nname = \"acme\"\nprefix = \"acme/\"\ncalls_per_s = 100\n";
        let sections = [&kafka_section, "partitions = 4\n", &search, &audit, &disk, tenants];
        std::fs::write(&config, sections.concat()).expect("a file");
        let path = config.to_str().expect("text");
        let of_redis = ["--redis-url", url.as_str(), "--allow-volatile"];
        let args = [&["server", "--config", path, "--metrics-listen", &queue], &of_redis[..]].concat();
        let server = Server::start_as(&args).await;
        let queue_url = server.url();
        let archiving = dir.path().join("archive.toml");
        let archive = format!("[archive]\nurl = \"file://{}\"\n", dir.path().join("archive").display());
        let regions = format!("[regions]\nname = \"eu\"\ntopic = \"{name}.regions\"\n");
        let archive = [archive, format!("[kafka]\nbrokers = \"{}\"\n", kafka.address()), regions].concat();
        std::fs::write(&archiving, archive).expect("a file");
        let archiving = ["--config", archiving.to_str().expect("text")];
        let of_archive = [&of_redis[..], &archiving].concat();
        let args = [&["counters", "--server", &queue_url, "--metrics-listen", &counters], &of_archive[..]].concat();
        let counting = Server::start_as(&args).await;
        let adds = Topics::create(kafka.address(), "exported", 2).await;
        let group = adds.group();
        let args = ["ingest", "--kafka-brokers", &adds.brokers, "--topic", &adds.source, "--group", &group];
        let counters_url = counting.url();
        let ingesting =
            Server::start_as(&[&args[..], &["--counters", &counters_url, "--metrics-listen", &ingest]].concat()).await;
        let args = [&["rollup-worker", "--server", &queue_url, "--metrics-listen", &worker], &of_archive[..]].concat();
        let rollup_worker = Running::start(program::command(&args));
        let ca = Ca::new(dir.path(), "ca");
        let files = ca.server(dir.path());
        let [certificate, key] = [&files.certificate, &files.key].map(|path| path.to_str().expect("text"));
        let tls = ["--tls-cert", certificate, "--tls-key", key, "--metrics-listen", &views];
        let viewing =
            Server::start_as(&[&["views", "--counters", &counters_url], &tls[..], &of_redis[..]].concat()).await;
        let (topic, address) = (format!("{name}-views"), kafka.address());
        let args = ["views", "--kafka-brokers", &address, "--topic", &topic, "--counters", &counters_url];
        let viewing_in_kafka = Server::start_as(&[&args[..], &["--metrics-listen", &in_kafka]].concat()).await;
        let settings = [
            ("TALLYSTONE_KAFKA_TOPIC", name.as_str()),
            ("TALLYSTONE_INDEXER_GROUP", &name),
            ("TALLYSTONE_ELASTICSEARCH_INDEX_PREFIX", &name),
        ];
        let mut indexer = Indexer::new(kafka.address(), elasticsearch.address(), &settings);
        indexer.start().await;

        let client = Client::connect(queue_url).await.expect("a client");
        client.create_queue("orders", QueueConfig::simple()).await.expect("a queue");
        client.enqueue("orders", vec![NewMessage::new("m", "")]).await.expect("an Enqueue");
        let cancel = client.cancel("orders", vec![Cancellation::of("absent")]).await.expect("a Cancel");
        cancel[0].as_ref().expect_err("a refusal, which a counter shows");
        let counts = CounterClient::connect(counting.url()).await.expect("a client");
        counts.put_namespace("views", NamespaceConfig::default()).await.expect("a namespace");
        counts.add("views", NewAdd::new("flights", 1)).await.expect("an add");
        let body = r#"{"videoId":"cats","userId":"mia","timestamp":"2026-11-25T08:00:00Z"}"#;
        for url in [viewing.url().replace("http://", "https://"), viewing_in_kafka.url()] {
            let post = trusting(&ca).post(format!("{url}/v1/views")).header("content-type", "application/json");
            assert_eq!(post.body(body).send().await.expect("an answer").status(), 202);
        }
        let metrics = [queue, counters, ingest, worker, indexer.metrics_address(), in_kafka, views];
        let servers = [server, counting, ingesting, viewing, viewing_in_kafka];
        let services = (kafka, elasticsearch, redis);
        Installation {
            _servers: servers,
            _rollup_worker: rollup_worker,
            _indexer: indexer,
            metrics,
            ca,
            _dir: dir,
            _services: services,
        }
    }
}

/// A client of servers with a certificate of this CA.
fn trusting(ca: &Ca) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&ca.file).expect("a file")).expect("PEM");
    http_builder().add_root_certificate(ca).build().expect("a client")
}

#[tokio::test]
async fn o1_o5_all_that_alerts_and_dashboards_name_is_exported_and_every_series_has_help() {
    let mut wanted = BTreeSet::new();
    for file in ["prometheus/alerts.yml", "grafana/queues.json", "grafana/counters-and-history.json"] {
        let text = std::fs::read_to_string(deploy().join(file)).expect("a file");
        let metrics = named(&text);
        assert!(metrics.len() > 9, "{file}: {metrics:?}");
        wanted.extend(metrics);
    }
    let installation = Installation::start().await;
    let give_up_at = Instant::now() + SOON;
    loop {
        let (mut exported, mut faults) = (BTreeSet::new(), Vec::new());
        for (number, address) in installation.metrics.iter().enumerate() {
            let text = match number {
                6 => {
                    let page = trusting(&installation.ca).get(format!("https://{address}/metrics"));
                    page.send().await.expect("metrics are served").text().await.expect("a page")
                }
                _ => metrics_page(address).await,
            };
            let page = Page::read(&text);
            assert!(!page.series.is_empty(), "{address} has no metrics");
            faults.extend(page.faults());
            exported.extend(page.series);
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        let missing: Vec<_> = wanted.difference(&exported).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < give_up_at, "no process exports {missing:?}, of {exported:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn o5_each_alert_links_to_its_section_of_the_runbook_and_has_a_test() {
    let read = |path: &str| std::fs::read_to_string(deploy().join(path)).expect("a file");
    let (alerts, tests) = (read("prometheus/alerts.yml"), read("prometheus/alerts_test.yml"));
    let runbook = read("../docs/operations/runbook.md");
    let sections: Vec<&str> = runbook.split("\n## ").skip(1).collect();
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 15, "{} alerts", rules.len());
    for rule in rules {
        let name = rule.lines().next().expect("a name");
        let link = rule.lines().find_map(|line| line.trim().strip_prefix("runbook_url: ")).expect(name);
        let anchor = link.split_once("/docs/operations/runbook.md#").expect(link).1;
        let heading = |section: &&&str| {
            let heading = section.lines().next().expect("a heading");
            heading.to_lowercase().replace(' ', "-") == anchor
        };
        let section = sections.iter().find(heading).unwrap_or_else(|| panic!("{name}: no section {anchor}"));
        assert!(section.contains(&format!("`{name}`")), "the section {anchor} does not name {name}");
        assert!(tests.contains(&format!("- name: {name}\n")), "{name} has no test");
    }
}

#[test]
fn o5_each_dashboard_is_one_that_grafana_can_import() {
    for file in ["grafana/queues.json", "grafana/counters-and-history.json"] {
        let text = std::fs::read_to_string(deploy().join(file)).expect("a file");
        let board: Value = serde_json::from_str(&text).expect("JSON");
        let panels = board["panels"].as_array().expect("panels");
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
        assert_eq!(ids.len(), panels.len(), "{file}: ids are different");
        for panel in panels {
            let title = panel["title"].as_str().expect("a title");
            assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{file}: {title}");
            for target in panel["targets"].as_array().expect("targets") {
                let query = target["expr"].as_str().expect("a query");
                assert!(query.contains("tallystone_"), "{file}: {title}: {query}");
            }
        }
    }
}
