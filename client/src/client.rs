//! The client of queues and history.

use crate::calls::{Calls, LIMIT_MAX};
use crate::connection::{ClientBuilder, FromConnections, RESPONSE_BYTES_MAX};
use crate::enqueues::Enqueues;
use crate::error::Result;
use crate::outage::Outage;
use crate::servers::OnEach;
use crate::shared_streams::SharedStreams;
use crate::work_connections::WorkConnections;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_proto::queue::v1::{queue_admin_client::QueueAdminClient, queue_client::QueueClient};
use tonic::transport::Channel;

/// A connection to a Tallystone server. Clones share it, so cloning is cheap. Where they have more than a thousand Work
/// streams, those use further connections. Enqueues that are under way at the same time share a stream.
///
/// It reconnects automatically. While the server is [unavailable](crate::Error::Unavailable), a call is repeated with
/// jittered exponential backoff for [`retry_for`](ClientBuilder::retry_for); that is safe because
/// [every call can be repeated](crate#every-call-can-be-repeated).
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) queue: OnEach<QueueClient<Channel>>,
    pub(crate) enqueues: OnEach<Arc<Enqueues>>,
    pub(crate) admin: OnEach<QueueAdminClient<Channel>>,
    pub(crate) history: OnEach<HistoryClient<Channel>>,
    pub(crate) work: Arc<WorkConnections>,
    pub(crate) shared: Arc<SharedStreams>,
    pub(crate) calls: Calls,
    pub(crate) outage: Arc<Outage>,
}

impl Client {
    /// Connects to `http://host:port`.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect) if no server accepts the connection now.
    /// [`ClientBuilder::connect_lazy`] connects later.
    pub async fn connect(url: impl Into<String>) -> Result<Client> {
        Client::builder(url).connect().await
    }

    /// A builder, to change the default time limits.
    pub fn builder(url: impl Into<String>) -> ClientBuilder<Client> {
        ClientBuilder::new(url)
    }

    /// The same connection with another time limit for one attempt of a call.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> Client {
        let call_timeout = call_timeout.min(LIMIT_MAX);
        Client { calls: Calls { call_timeout, ..self.calls.clone() }, ..self.clone() }
    }

    /// The same connection with another time limit for all attempts of a call; zero: a call is never repeated.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> Client {
        Client { calls: Calls { retry_for, ..self.calls.clone() }, ..self.clone() }
    }
}

impl FromConnections for Client {
    fn from_connections(
        connections: &[Channel],
        calls: Calls,
        connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self {
        Client {
            queue: OnEach::new(connections, |connection| {
                QueueClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX)
            }),
            enqueues: OnEach::new(connections, Enqueues::new),
            admin: OnEach::new(connections, |connection| {
                QueueAdminClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX)
            }),
            history: OnEach::new(connections, |connection| {
                HistoryClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX)
            }),
            work: Arc::new(WorkConnections::new(connections[0].clone(), calls.token.clone(), connect)),
            shared: Arc::default(),
            calls,
            outage: Arc::default(),
        }
    }
}
