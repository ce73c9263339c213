//! The health of a process, and what `grpc.health.v1` answers for services whose health changes.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

/// The health of a process as a whole, for its ports.
#[derive(Clone)]
pub struct ProcessHealth {
    pub(crate) reporter: HealthReporter,
    pub(crate) stopping: CancellationToken,
}

impl ProcessHealth {
    /// Of a process without a host. It serves until something else is reported, and is not ready once `stopping` is cancelled.
    pub fn new(stopping: CancellationToken) -> ProcessHealth {
        ProcessHealth { reporter: health_reporter().0, stopping }
    }

    /// Sets whether the process serves.
    pub async fn report(&self, is_serving: bool) {
        let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.reporter.set_service_status("", status).await;
    }
}

/// Reports the health of these services now and with every change of a state, until its sender is dropped. `is_serving` is
/// called once for each state.
pub async fn report_health<T>(
    reporter: HealthReporter,
    services: &[&'static str],
    mut state: watch::Receiver<T>,
    is_serving: impl Fn(&T) -> bool,
) {
    loop {
        let status =
            if is_serving(&state.borrow_and_update()) { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in services {
            reporter.set_service_status(*service, status).await;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
