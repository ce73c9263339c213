//! Whether a server serves: the standard health service of gRPC.

use crate::calls::Calls;
use crate::connection::{ClientBuilder, FromConnections};
use crate::error::{Error, Result};
use std::time::Duration;
use tonic::Request;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient as HealthCalls;

/// Reads the health of one server. The call needs no token.
#[derive(Clone, Debug)]
pub struct HealthClient {
    calls: HealthCalls<Channel>,
    timeout: Duration,
}

impl HealthClient {
    /// A builder for the server at this address.
    pub fn builder(url: impl Into<String>) -> ClientBuilder<HealthClient> {
        ClientBuilder::new(url)
    }

    /// Whether a service of the server serves calls. The empty name stands for the server as a whole.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NotFound`: the server has no such service. [`Error::Unavailable`]: the server does not
    /// answer.
    pub async fn is_serving(&self, service: &str) -> Result<bool> {
        let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
        request.set_timeout(self.timeout);
        match self.calls.clone().check(request).await {
            Ok(answer) => Ok(answer.into_inner().status() == ServingStatus::Serving),
            Err(status) => Err(Error::from_status(&status)),
        }
    }
}

impl FromConnections for HealthClient {
    fn from_connections(
        connections: &[Channel],
        calls: Calls,
        _connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self {
        HealthClient { calls: HealthCalls::new(connections[0].clone()), timeout: calls.call_timeout }
    }
}
