//! A namespace whose events go to an archive, wherever that is (N15).

use super::dev::Dev;
use super::program::{metrics_page, until};
use std::path::Path;
use std::time::Duration;
use tallystone_client::{CounterClient, Error, IdempotencyToken, NewAdd};

/// `tallystone dev` with the archive that this environment names, to which events go soon.
pub(super) async fn start(folder: &Path, metrics: &str, archive: &[(&str, &str)]) -> Dev {
    let soon = [("TALLYSTONE_ARCHIVE_INTERVAL_MS", "200"), ("TALLYSTONE_ARCHIVE_KEEP_MS", "0")];
    Dev::start_with(folder, &["--metrics-listen", metrics], &[archive, &soon].concat()).await
}

/// Three adds of 5 to the counter `clicks` of the namespace `ads`, which the archive has.
pub(super) struct Archived {
    pub(super) client: CounterClient,
    pub(super) adds: [NewAdd; 3],
}

impl Archived {
    /// Counts them, and waits until the archive has them.
    pub(super) async fn count(dev: &Dev, metrics: &str) -> Archived {
        dev.counter(&["namespace", "put", "ads", "--accept-limit", "3s", "--coalesce", "0s"]).await;
        let client = CounterClient::builder(dev.counters()).retry_for(Duration::ZERO).connect().await;
        let client = client.expect("a server");
        let adds = ["one", "two", "three"].map(|token| {
            NewAdd::new("clicks", 5).token(IdempotencyToken { token: token.to_owned(), ..IdempotencyToken::now() })
        });
        for add in &adds {
            assert!(!client.add("ads", add.clone()).await.expect("an add").duplicate);
        }
        let is_archived = async || metrics_page(metrics).await.contains("\ntallystone_archived_events_total 3\n");
        until("three events are archived", is_archived).await;
        Archived { client, adds }
    }

    /// No other answer than before.
    pub(super) async fn is_answered_as_before(&self, dev: &Dev) {
        assert!(self.client.add("ads", self.adds[1].clone()).await.expect("a retry").duplicate);
        let audited = dev.counter(&["audit", "clicks", "--namespace", "ads"]).await;
        assert_eq!((&audited["count"], &audited["events"]), (&15.into(), &3.into()), "{audited}");
        let sums = dev.counter(&["get", "clicks", "--namespace", "ads", "--by", "day"]).await;
        assert_eq!((&sums["sum"], &sums["adds"]), (&15.into(), &3.into()), "{sums}");
    }

    /// The archive does not answer: nothing is guessed.
    pub(super) async fn is_unavailable(&self) {
        let again = self.client.add("ads", self.adds[0].clone()).await.expect_err("its archive is not there");
        assert!(matches!(again, Error::Unavailable { .. }), "{again:?}");
    }
}
