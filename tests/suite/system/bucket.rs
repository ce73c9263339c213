//! The archive in a bucket: `tallystone dev` with a server that has the interface of S3 (N15).

use super::dev::Dev;
use super::program::{SOON, metrics_page};
use reqwest::Client;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tallystone_client::{CounterClient, Error, IdempotencyToken, NewAdd};
use tallystone_local::moto;
use tallystone_tests::lasting_port;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);

/// moto, which keeps its objects in memory.
struct Bucket {
    process: Child,
    url: String,
    client: Client,
}

impl Bucket {
    async fn start(port: u16) -> Bucket {
        let process = Command::new("python3")
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .env("PYTHONPATH", moto().unwrap_or_else(|missing| panic!("{missing}")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("python3");
        let client = Client::builder().no_proxy().build().expect("a client");
        let bucket = Bucket { process, url: format!("http://127.0.0.1:{port}"), client };
        let give_up_at = Instant::now() + SOON;
        while bucket.client.put(format!("{}/bucket", bucket.url)).send().await.is_err() {
            assert!(Instant::now() < give_up_at, "moto does not listen");
            sleep(POLL).await;
        }
        bucket
    }

    /// How many Parquet objects it has below the prefix of the archive.
    async fn objects(&self) -> usize {
        let list = format!("{}/bucket?list-type=2&prefix=counters/", self.url);
        let listed = self.client.get(list).send().await.expect("a list").text().await.expect("text");
        listed.matches(".parquet</Key>").count()
    }
}

async fn start(folder: &Path, url: &str, metrics: &str) -> Dev {
    let credentials = folder.join("bucket-credentials");
    std::fs::write(&credentials, "AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=key\n").expect("a file");
    let environment = [
        ("TALLYSTONE_ARCHIVE_CREDENTIALS_FILE", credentials.to_str().expect("a plain path")),
        ("TALLYSTONE_ARCHIVE_URL", "s3://bucket/counters"),
        ("TALLYSTONE_ARCHIVE_INTERVAL_MS", "200"),
        ("TALLYSTONE_ARCHIVE_KEEP_MS", "0"),
        ("AWS_ENDPOINT", url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
    ];
    Dev::start_with(folder, &["--metrics-listen", metrics], &environment).await
}

#[tokio::test]
async fn n15_events_go_to_a_bucket_and_are_found_there() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), lasting_port());
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let mut bucket = Bucket::start(port).await;
    let dev = start(folder.path(), &bucket.url, &metrics).await;
    dev.counter(&["namespace", "put", "ads", "--accept-limit", "3s", "--coalesce", "0s"]).await;
    let client = CounterClient::builder(dev.counters()).retry_for(Duration::ZERO).connect().await.expect("a server");
    let adds = ["one", "two", "three"].map(|token| {
        NewAdd::new("clicks", 5).token(IdempotencyToken { token: token.to_owned(), ..IdempotencyToken::now() })
    });
    for add in &adds {
        assert!(!client.add("ads", add.clone()).await.expect("an add").duplicate);
    }
    let give_up_at = Instant::now() + SOON;
    while !metrics_page(&metrics).await.contains("\ntallystone_archived_events_total 3\n") {
        assert!(Instant::now() < give_up_at, "three events are not archived");
        sleep(POLL).await;
    }
    assert!(bucket.objects().await > 0);
    // No other answer than before.
    assert!(client.add("ads", adds[1].clone()).await.expect("a retry").duplicate);
    let audited = dev.counter(&["audit", "clicks", "--namespace", "ads"]).await;
    assert_eq!((&audited["count"], &audited["events"]), (&15.into(), &3.into()), "{audited}");
    let sums = dev.counter(&["get", "clicks", "--namespace", "ads", "--by", "day"]).await;
    assert_eq!((&sums["sum"], &sums["adds"]), (&15.into(), &3.into()), "{sums}");
    // Another bucket at the same address, as after a wrong mount: nothing is guessed.
    bucket.process.kill().await.expect("it ends");
    drop(bucket);
    let _other = Bucket::start(port).await;
    let again = client.add("ads", adds[0].clone()).await.expect_err("its archive is not there");
    assert!(matches!(again, Error::Unavailable { .. }), "{again:?}");
    assert_eq!(dev.counter(&["get", "clicks", "--namespace", "ads"]).await["count"], 15, "a count needs no archive");
}
