//! A real Elasticsearch for tests: that of the environment, or started in a temporary folder and gone with its last user.

use crate::ports::lasting_port;
use std::sync::{Arc, Weak};
use tallystone_local::{PrivateElasticsearch, PrivateElasticsearchOptions};
use tempfile::TempDir;
use tokio::sync::Mutex;

static SHARED: Mutex<Weak<TestElasticsearch>> = Mutex::const_new(Weak::new());

/// An Elasticsearch. Indices of the tests' own names keep them apart.
pub struct TestElasticsearch {
    url: String,
    own: Option<Own>,
}

struct Own {
    options: PrivateElasticsearchOptions,
    // Before the folder, so that it stops before the folder goes.
    process: Mutex<Option<PrivateElasticsearch>>,
    _dir: TempDir,
}

impl TestElasticsearch {
    /// One of its own, that may be killed.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options =
            PrivateElasticsearchOptions { port: Some(lasting_port()), ..PrivateElasticsearchOptions::new(dir.path()) };
        let process = PrivateElasticsearch::start(options.clone()).await.expect("an Elasticsearch");
        let url = process.url();
        TestElasticsearch { url, own: Some(Own { options, process: Mutex::new(Some(process)), _dir: dir }) }
    }

    /// The one that all tests of this process share: `TALLYSTONE_TEST_ELASTICSEARCH` (its URL), or one started for them.
    pub async fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().await;
        if let Some(elasticsearch) = shared.upgrade() {
            return elasticsearch;
        }
        let elasticsearch = Arc::new(match std::env::var("TALLYSTONE_TEST_ELASTICSEARCH") {
            Ok(url) => TestElasticsearch { url, own: None },
            Err(_) => TestElasticsearch::start().await,
        });
        *shared = Arc::downgrade(&elasticsearch);
        elasticsearch
    }

    /// Where it listens, or will again: `http://HOST:PORT`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub async fn kill(&self) {
        if let Some(process) = self.own().process.lock().await.take() {
            process.kill();
            process.ended().await;
        }
    }

    /// Starts it where it was, with the data that it had, if it is not running.
    pub async fn start_again(&self) {
        let mut process = self.own().process.lock().await;
        if process.is_none() {
            *process =
                Some(PrivateElasticsearch::start(self.own().options.clone()).await.expect("an Elasticsearch, again"));
        }
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("an Elasticsearch that was started here")
    }
}
