//! The client of counters, on top of the generated code of `tallystone.counter.v1`: adds and clears ([`add`]), reads
//! ([`read`]), audits and recounts ([`recount`]), the feed of passed thresholds ([`crossings`]), the
//! highest counts ([`top`]), namespaces
//! ([`namespace`]), and one method per RPC ([`calls`]). What may not live here: how counts are kept.

mod add;
mod calls;
mod crossings;
mod namespace;
mod read;
mod recount;
mod top;

pub use add::{Added, AddedAndCounted, Cleared, IdempotencyToken, NewAdd, NewClear};
pub use crossings::{Crossing, CrossingDirection, Crossings};
pub use namespace::{Cardinality, CounterType, Namespace, NamespaceConfig, PublishedTo, Threshold};
pub use read::{Counted, CounterEntry, CounterEvent, ExactTo, GlobalCount, Period, PeriodSum, RegionCount, Sums};
pub use recount::{Audit, AuditGroup, AuditGrouping, NewRecount, Recount};
pub use top::TopCounters;

use crate::calls::{Calls, LIMIT_MAX};
use crate::connection::{ClientBuilder, FromConnections, RESPONSE_BYTES_MAX};
use crate::error::Result;
use crate::servers::OnEach;
use std::time::Duration;
use tallystone_proto::counter::v1::{counter_admin_client::CounterAdminClient, counters_client::CountersClient};
use tonic::transport::Channel;

/// A connection to a counters server. Clones share it, so cloning is cheap. It reconnects, repeats calls and limits their
/// time as [`Client`](crate::Client) does.
///
/// ```no_run
/// use tallystone_client::{CounterClient, ExactTo, IdempotencyToken, NamespaceConfig, NewAdd};
///
/// # async fn example() -> tallystone_client::Result<()> {
/// let counters = CounterClient::connect("http://127.0.0.1:7610").await?;
/// counters.put_namespace("videos", NamespaceConfig::default()).await?;
///
/// counters.add("videos", NewAdd::new("cats", 1)).await?;
///
/// // An event that may be sent twice, for example after a restart, has its own token and time.
/// let viewed = NewAdd::new("cats", 1).token(IdempotencyToken::new("view-4711", 1_767_225_600_000));
/// let added = counters.add("videos", viewed).await?;
/// println!("counted before: {}", added.duplicate);
///
/// let counted = counters.get("videos", "cats").await?;
/// println!("{}, exact to {}", counted.count, counted.exact_to_ms);
///
/// // A count that includes everything up to now. It takes as long as adds may be late: 5 s by default.
/// let counted = counters.get_exact("videos", "cats", ExactTo::now()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Every add has a token
/// The server identifies an event by its counter, token and time, and counts it once. An add or clear without a token
/// would be a new event each time it is sent. So the client gives it one, with this machine's time, before the first
/// attempt, and repeats the call with the same token. If an attempt whose answer was lost had counted, the next one
/// answers `duplicate`. If it had not, the next one counts; or, once the namespace's accept limit (5 s by default) has
/// passed, it is refused as `TOO_OLD` and certainly not counted.
///
/// - This machine's clock must be less than the accept limit behind the store's, and less than 1 s ahead of it. Otherwise
///   events are refused (`TOO_OLD`, `TOO_EARLY`).
/// - A token that the client drew is lost when the call returns. To repeat a call yourself, after
///   [`Error::Unavailable`](crate::Error::Unavailable) or a single item that [is
///   unavailable](crate::Refused::is_unavailable), set a token ([`IdempotencyToken::now`]) and keep it.
/// - Counters of a `BEST_EFFORT` namespace ignore tokens, and the client does not know the type. A call that it repeats
///   after an attempt that [may have counted](crate::Applied::Unknown) may count twice. If losing an add is better
///   than counting it twice, set [`retry_for`](ClientBuilder::retry_for) to zero.
#[derive(Clone, Debug)]
pub struct CounterClient {
    counters: OnEach<CountersClient<Channel>>,
    admin: OnEach<CounterAdminClient<Channel>>,
    calls: Calls,
}

impl CounterClient {
    /// Connects to `http://host:port`.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect) if no server accepts the connection now.
    /// [`ClientBuilder::connect_lazy`] connects later.
    pub async fn connect(url: impl Into<String>) -> Result<CounterClient> {
        CounterClient::builder(url).connect().await
    }

    /// Connects to `http://host:port` with the first call. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect) if the URL is invalid.
    pub fn connect_lazy(url: impl Into<String>) -> Result<CounterClient> {
        CounterClient::builder(url).connect_lazy()
    }

    /// A builder, to change the default time limits.
    pub fn builder(url: impl Into<String>) -> ClientBuilder<CounterClient> {
        ClientBuilder::new(url)
    }

    /// The same connection with another time limit for one attempt of a call.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> CounterClient {
        let call_timeout = call_timeout.min(LIMIT_MAX);
        CounterClient { calls: Calls { call_timeout, ..self.calls.clone() }, ..self.clone() }
    }

    /// The same connection with another time limit for all attempts of a call; zero: a call is never repeated.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> CounterClient {
        CounterClient { calls: Calls { retry_for, ..self.calls.clone() }, ..self.clone() }
    }

    /// The same connection, on which each call is one attempt: the caller learns of every attempt that has no answer.
    pub(crate) fn once(&self) -> CounterClient {
        CounterClient { calls: Calls { retry_for: Duration::ZERO, ..self.calls.unhedged() }, ..self.clone() }
    }
}

impl ClientBuilder<CounterClient> {
    /// One more server of the same counters. A call goes to the server that answered last; where that one is unavailable, or a
    /// [hedge](ClientBuilder::hedge) is answered first, this call and later ones go to the next server.
    #[must_use]
    pub fn server(self, url: impl Into<String>) -> Self {
        self.with_server(url.into())
    }
}

impl FromConnections for CounterClient {
    fn from_connections(
        connections: &[Channel],
        calls: Calls,
        _: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self {
        CounterClient {
            counters: OnEach::new(connections, |connection| {
                CountersClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX)
            }),
            admin: OnEach::new(connections, |connection| {
                CounterAdminClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX)
            }),
            calls,
        }
    }
}
