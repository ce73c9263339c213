//! The client of queues and history.

use crate::connection::{CallLimits, ClientBuilder, FromChannel, RESPONSE_BYTES_MAX};
use crate::error::Result;
use crate::outage::Outage;
use crate::work_connections::WorkConnections;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_proto::queue::v1::{queue_admin_client::QueueAdminClient, queue_client::QueueClient};
use tonic::transport::Channel;

/// A connection to a Tallystone server. Clones share it, so cloning is cheap. Where they have more than a thousand Work
/// streams, those use further connections.
///
/// It reconnects automatically. While the server is [unavailable](crate::Error::Unavailable), a call is repeated with
/// jittered exponential backoff for [`retry_for`](ClientBuilder::retry_for); that is safe because
/// [every call can be repeated](crate#every-call-can-be-repeated).
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) queue: QueueClient<Channel>,
    pub(crate) admin: QueueAdminClient<Channel>,
    pub(crate) history: HistoryClient<Channel>,
    pub(crate) work: Arc<WorkConnections>,
    pub(crate) limits: CallLimits,
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
        Client { limits: CallLimits { call_timeout, ..self.limits }, ..self.clone() }
    }

    /// The same connection with another time limit for all attempts of a call; zero: a call is never repeated.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> Client {
        Client { limits: CallLimits { retry_for, ..self.limits }, ..self.clone() }
    }
}

impl FromChannel for Client {
    fn from_channel(
        channel: Channel,
        limits: CallLimits,
        connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self {
        let work = Arc::new(WorkConnections::new(channel.clone(), connect));
        Client {
            queue: QueueClient::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX),
            admin: QueueAdminClient::new(channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX),
            history: HistoryClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX),
            work,
            limits,
            outage: Arc::default(),
        }
    }
}
