//! What `grpc.health.v1` answers for services whose health changes.

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

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
