//! The archive in a bucket: `tallystone dev` with a server that has the interface of S3 (N15).

use super::archived::{self, Archived};
use super::dev::Dev;
use super::program::SOON;
use reqwest::Client;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tallystone_local::moto;
use tallystone_tests::{http_client, lasting_port};
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
        let client = http_client();
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
        ("AWS_ENDPOINT", url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
    ];
    archived::start(folder, metrics, &environment).await
}

#[tokio::test]
async fn n15_events_go_to_a_bucket_and_are_found_there() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), lasting_port());
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let mut bucket = Bucket::start(port).await;
    let dev = start(folder.path(), &bucket.url, &metrics).await;
    let archived = Archived::count(&dev, &metrics).await;
    assert!(bucket.objects().await > 0);
    archived.is_answered_as_before(&dev).await;
    // Another bucket at the same address, as after a wrong mount.
    bucket.process.kill().await.expect("it ends");
    drop(bucket);
    let _other = Bucket::start(port).await;
    archived.is_unavailable().await;
    assert_eq!(dev.counter(&["get", "clicks", "--namespace", "ads"]).await["count"], 15, "a count needs no archive");
}
