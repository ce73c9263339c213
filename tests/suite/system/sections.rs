//! The sections of the configuration that only a whole process can judge, without a process.

use std::path::PathBuf;
use tallystone_assembly::{ClientConfig, Config, TelemetryConfig};
use tallystone_counters::ArchiveConfig;
use tallystone_indexer::HistoryGroup;

#[test]
fn a_certificate_and_its_key_are_set_together() {
    let [certificate, key] = [Some(PathBuf::from("c")), Some(PathBuf::from("k"))];
    let field = |cert_file: &Option<PathBuf>, key_file: &Option<PathBuf>| {
        let (cert_file, key_file) = (cert_file.clone(), key_file.clone());
        ClientConfig { cert_file, key_file, ..ClientConfig::default() }.check().err().map(|error| error.field)
    };
    assert_eq!((field(&certificate, &key), field(&None, &None)), (None, None));
    assert_eq!(field(&certificate, &None).as_deref(), Some("client.key_file"));
    assert_eq!(field(&None, &key).as_deref(), Some("client.cert_file"));
}

#[test]
fn history_lives_in_one_place() {
    assert_eq!(Config::default().check_queue(), Ok(()));
    let mut config = Config::default();
    config.history.file = Some("h.db".into());
    assert_eq!(config.check_queue(), Ok(()));
    let mut with_kafka = config.clone();
    with_kafka.kafka.brokers = Some("k:1".to_owned());
    assert_eq!(with_kafka.check_queue().unwrap_err().field, "history.file");
    config.elasticsearch.url = Some("http://e:9200".to_owned());
    assert_eq!(config.check_queue().unwrap_err().field, "history.file");
}

#[test]
fn the_topics_of_groups_differ_from_the_topic_of_all_others() {
    let mut config = Config::default();
    config.kafka.brokers = Some("k:1".to_owned());
    let group = |topic: &str| HistoryGroup {
        name: "g".to_owned(),
        prefix: "g/".to_owned(),
        topic: Some(topic.to_owned()),
        retention_ms: None,
    };
    config.history.groups = vec![group("g.events")];
    assert_eq!((config.check_queue(), config.check_indexer()), (Ok(()), Ok(())));
    for bad in [config.kafka.topic.clone(), "a b".to_owned()] {
        config.history.groups = vec![group(&bad)];
        assert_eq!(config.check_queue().unwrap_err().field, "history.groups[0].topic");
    }
}

#[test]
fn a_process_checks_the_sections_that_it_uses() {
    let mut config = Config::default();
    config.indexer.batch_events = 0;
    assert!(config.check_indexer().is_err());
    assert_eq!((config.check_queue(), config.check_counters()), (Ok(()), Ok(())));
    config.redis.replicas_min = 17;
    for checked in [config.check_queue(), config.check_counters(), config.check_rollup_worker()] {
        assert_eq!(checked.unwrap_err().field, "redis.replicas_min");
    }
}

#[test]
fn o2_only_a_usable_collector_is_accepted() {
    let field = |endpoint: &str, sample_ratio| {
        let config =
            TelemetryConfig { otlp_endpoint: Some(endpoint.to_owned()), otlp_headers_file: None, sample_ratio };
        config.check().err().map(|error| error.field)
    };
    assert_eq!(TelemetryConfig::default().check(), Ok(()));
    let without = TelemetryConfig { otlp_headers_file: Some("h".into()), ..TelemetryConfig::default() };
    assert_eq!(without.check().unwrap_err().field, "telemetry.otlp_headers_file");
    for good in ["http://127.0.0.1:4317", "https://collector.example", "http://[::1]:4317/"] {
        assert_eq!(field(good, 0.0), None, "{good}");
    }
    for bad in ["", "collector:4317", "grpc://c:1", "http://", "http:///", "http://user:secret@c:1", "http://a b"] {
        assert_eq!(field(bad, 1.0).as_deref(), Some("telemetry.otlp_endpoint"), "{bad}");
    }
    for bad in [-0.1, 1.1, f64::NAN] {
        assert_eq!(field("http://c:1", bad).as_deref(), Some("telemetry.sample_ratio"), "{bad}");
    }
}

#[test]
fn s6_credentials_of_a_cloud_are_in_a_file_that_no_error_shows() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let url = Some("s3://bucket/prefix".to_owned());
    let config = ArchiveConfig { url, credentials_file: Some(file.path().to_owned()), ..ArchiveConfig::default() };
    let open = |text: &str| {
        std::fs::write(file.path(), text).expect("a file");
        config.open().map(|archive| archive.is_some())
    };
    let good = "# of the archive\n\nAWS_REGION = eu-1\nAWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=a=b\nCASSANDRA_USERNAME=me\n";
    assert_eq!(open(good), Ok(true));
    for bad in ["AWS_REGION=eu-1\nsecret", "AWS_REGION=eu-1\nPATH=secret"] {
        let error = open(bad).expect_err("a bad line");
        assert_eq!(error.field, "archive.credentials_file");
        assert!(error.why.contains("line 2") && !error.why.contains("secret"), "{error:?}");
    }
}

#[test]
fn v3_views_in_kafka_need_no_redis() {
    let mut config = Config::default();
    config.redis.replicas_min = 17;
    assert_eq!(config.check_views().unwrap_err().field, "redis.replicas_min");
    config.views.topic = Some("views".to_owned());
    config.kafka.brokers = Some("k:1".to_owned());
    assert_eq!(config.check_views(), Ok(()));
    config.views.topic = Some("a b".to_owned());
    assert_eq!(config.check_views().unwrap_err().field, "views.topic");
}
