//! A real Kafka for tests: that of the environment, or started in a temporary folder and gone with its last user.

use crate::ports::lasting_port;
use std::sync::{Arc, Weak};
use tallystone_local::{PrivateKafka, PrivateKafkaOptions};
use tempfile::TempDir;
use tokio::sync::Mutex;

static SHARED: Mutex<Weak<TestKafka>> = Mutex::const_new(Weak::new());

/// A Kafka. Topics of the tests' own names keep them apart.
pub struct TestKafka {
    address: String,
    own: Option<Own>,
}

struct Own {
    options: PrivateKafkaOptions,
    // Before the folder, so that it stops before the folder goes.
    process: Mutex<Option<PrivateKafka>>,
    _dir: TempDir,
}

impl TestKafka {
    /// One of its own, that may be killed.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = PrivateKafkaOptions { port: Some(lasting_port()), ..PrivateKafkaOptions::new(dir.path()) };
        let process = PrivateKafka::start(options.clone()).await.expect("a Kafka");
        let address = process.address();
        TestKafka { address, own: Some(Own { options, process: Mutex::new(Some(process)), _dir: dir }) }
    }

    /// The one that all tests of this process share: `TALLYSTONE_TEST_KAFKA` (HOST:PORT), or one started for them.
    pub async fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().await;
        if let Some(kafka) = shared.upgrade() {
            return kafka;
        }
        let kafka = Arc::new(match std::env::var("TALLYSTONE_TEST_KAFKA") {
            Ok(address) => TestKafka { address, own: None },
            Err(_) => TestKafka::start().await,
        });
        *shared = Arc::downgrade(&kafka);
        kafka
    }

    /// Where it listens, or will again: HOST:PORT.
    pub fn address(&self) -> String {
        self.address.clone()
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
            *process = Some(PrivateKafka::start(self.own().options.clone()).await.expect("a Kafka, again"));
        }
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("a Kafka that was started here")
    }
}
