//! The client of queues and history, and how numbers and ids go over the wire.

use crate::connection::{ANSWER_BYTES_MAX, ClientBuilder, OverChannel, Patience};
use crate::error::Result;
use std::time::Duration;
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_proto::queue::v1::{queue_admin_client::QueueAdminClient, queue_client::QueueClient};
use tonic::transport::Channel;

/// One connection to a Tallystone server, shared by all its clones: clone it freely.
///
/// It connects again by itself. A call that finds the server [unavailable](crate::Error::Unavailable) is repeated, with
/// jittered exponential backoff, for [`retry_for`](ClientBuilder::retry_for); that is safe because
/// [every call is idempotent](crate#every-call-can-be-repeated).
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) queue: QueueClient<Channel>,
    pub(crate) admin: QueueAdminClient<Channel>,
    pub(crate) history: HistoryClient<Channel>,
    pub(crate) patience: Patience,
}

impl Client {
    /// Connects to `http://host:port`.
    ///
    /// Fails at once with [`Error::Connect`](crate::Error::Connect) where nobody listens;
    /// [`ClientBuilder::connect_lazy`] does not.
    pub async fn connect(url: impl Into<String>) -> Result<Client> {
        Client::builder(url).connect().await
    }

    /// A client to be, with other than the default patience.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// The same connection with another limit for one attempt of a call.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> Client {
        Client { patience: Patience { call_timeout, ..self.patience }, ..self.clone() }
    }

    /// The same connection with another limit for all attempts of a call; zero: never repeat.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> Client {
        Client { patience: Patience { retry_for, ..self.patience }, ..self.clone() }
    }
}

impl OverChannel for Client {
    fn over(channel: Channel, patience: Patience) -> Self {
        Client {
            queue: QueueClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            admin: QueueAdminClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            history: HistoryClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX),
            patience,
        }
    }
}

/// A new id: unique, and rising with time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Milliseconds for the wire; what does not fit is refused there like any other number out of bounds.
pub(crate) fn wire_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A count or the size of a page for the wire, in the same way.
pub(crate) fn wire_count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Milliseconds or counts from the wire, never negative.
pub(crate) fn from_wire(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
