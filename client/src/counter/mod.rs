//! The client of counters, over the generated code of `tallystone.counter.v1`: what goes in ([`add`]), what comes back
//! ([`read`]), namespaces ([`namespace`]), and one method per RPC ([`calls`]). What may not: what a count is made of.

mod add;
mod calls;
mod namespace;
mod read;

pub use add::{Added, AddedAndCounted, Cleared, IdempotencyToken, NewAdd, NewClear};
pub use namespace::{Cardinality, CounterType, Namespace, NamespaceConfig};
pub use read::{Counted, CounterEntry, CounterEvent};

use crate::connection::{ANSWER_BYTES_MAX, ClientBuilder, OverChannel, Patience};
use crate::error::Result;
use std::time::Duration;
use tallystone_proto::counter::v1::{counter_admin_client::CounterAdminClient, counters_client::CountersClient};
use tonic::transport::Channel;

/// One connection to a server of counters, shared by all its clones: clone it freely. It is made, limited and made again
/// as [`Client`](crate::Client) is.
///
/// ```no_run
/// use tallystone_client::{CounterClient, IdempotencyToken, NamespaceConfig, NewAdd};
///
/// # async fn example() -> tallystone_client::Result<()> {
/// let counters = CounterClient::connect("http://127.0.0.1:7610").await?;
/// counters.put_namespace("videos", NamespaceConfig::default()).await?;
///
/// counters.add("videos", NewAdd::new("cats", 1)).await?;
///
/// // An event that may be told twice, by us or after a restart of us, brings its own token and its own time.
/// let viewed = NewAdd::new("cats", 1).token(IdempotencyToken::new("view-4711", 1_767_225_600_000));
/// let added = counters.add("videos", viewed).await?;
/// println!("counted before: {}", added.duplicate);
///
/// let counted = counters.get("videos", "cats").await?;
/// println!("{}, exact to {}", counted.count, counted.exact_to_ms);
/// # Ok(())
/// # }
/// ```
///
/// # Every add has a token
/// The server counts an event once by its counter, its token and its time. An add or clear that brings no token would
/// be another event each time it is sent; so the client gives it one, with the time of this machine's clock, before
/// the first attempt, and repeats with the same. What is answered is true in any case: an attempt whose answer was lost
/// had counted, and the next one says `duplicate`; or it had not, and the next one counts or, where the namespace's
/// accept limit (5 s, if it was not set) has gone by meanwhile, is refused as `TOO_OLD` and certainly not counted.
///
/// - This machine's clock must be right: behind the store's by less than the accept limit, ahead by less than 1 s. Else
///   events are refused (`TOO_OLD`, `TOO_EARLY`).
/// - A token that the client drew is gone with its call. To repeat a call by yourself, after
///   [`Error::Unavailable`](crate::Error::Unavailable) or a single item that [is
///   unavailable](crate::Refused::is_unavailable), give it a token ([`IdempotencyToken::now`]) and keep that.
/// - Counters of a `BEST_EFFORT` namespace do not look at tokens, and the client cannot know that it talks to one: what
///   it repeats after an attempt that [may have counted](crate::Applied::Unknown) may count twice. Whoever would rather
///   lose an add than count it twice sets [`retry_for`](ClientBuilder::retry_for) to zero.
#[derive(Clone, Debug)]
pub struct CounterClient {
    counters: CountersClient<Channel>,
    admin: CounterAdminClient<Channel>,
    patience: Patience,
}

impl CounterClient {
    /// Connects to `http://host:port`.
    ///
    /// Fails at once with [`Error::Connect`](crate::Error::Connect) where nobody listens;
    /// [`ClientBuilder::connect_lazy`] does not.
    pub async fn connect(url: impl Into<String>) -> Result<CounterClient> {
        CounterClient::builder(url).connect().await
    }

    /// Connects to `http://host:port` with the first call. Must be called within a tokio runtime.
    pub fn connect_lazy(url: impl Into<String>) -> Result<CounterClient> {
        CounterClient::builder(url).connect_lazy()
    }

    /// A client to be, with other than the default patience.
    pub fn builder(url: impl Into<String>) -> ClientBuilder<CounterClient> {
        ClientBuilder::new(url)
    }

    /// The same connection with another limit for one attempt of a call.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> CounterClient {
        CounterClient { patience: Patience { call_timeout, ..self.patience }, ..self.clone() }
    }

    /// The same connection with another limit for all attempts of a call; zero: never repeat.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> CounterClient {
        CounterClient { patience: Patience { retry_for, ..self.patience }, ..self.clone() }
    }
}

impl OverChannel for CounterClient {
    fn over(channel: Channel, patience: Patience) -> Self {
        CounterClient {
            counters: CountersClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            admin: CounterAdminClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX),
            patience,
        }
    }
}
