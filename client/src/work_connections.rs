//! The connections of Work streams: a server bounds the streams of one connection, so the streams of many workers are spread
//! over several. Calls of other kinds stay on the client's first connection.

use crate::connection::RESPONSE_BYTES_MAX;
use crate::credentials::Token;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tokio_stream::Stream;
use tonic::Streaming;
use tonic::transport::Channel;

/// Work streams of one connection: far below what a Tallystone server accepts.
const STREAMS_MAX: usize = 1_000;

/// Opens one more connection with its first call.
type Connect = dyn Fn() -> Channel + Send + Sync;

/// All connections of a client that have Work streams.
pub(crate) struct WorkConnections {
    connect: Box<Connect>,
    token: Option<Arc<Token>>,
    connections: Mutex<Vec<WorkConnection>>,
}

#[derive(Clone)]
struct WorkConnection {
    channel: Channel,
    /// Each open stream has a clone.
    streams: Arc<()>,
}

/// A place for one Work stream, free again when this is dropped.
pub(crate) struct StreamPlace(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl WorkConnections {
    pub(crate) fn new(
        first: Channel,
        token: Option<Arc<Token>>,
        connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> WorkConnections {
        let first = WorkConnection { channel: first, streams: Arc::default() };
        WorkConnections { connect: Box::new(connect), token, connections: Mutex::new(vec![first]) }
    }

    /// Opens a stream that sends these requests.
    pub(crate) async fn open(
        &self,
        requests: impl Stream<Item = wire::WorkRequest> + Send + 'static,
        timeout: Duration,
    ) -> Result<(Streaming<wire::WorkResponse>, StreamPlace)> {
        let (mut queue, place) = self.place();
        let mut requests = tonic::Request::new(requests);
        if let Some(token) = &self.token {
            token.add_to(&mut requests);
        }
        let opening = tokio::time::timeout(timeout, queue.work(requests));
        let responses = opening.await.map_err(|_| Error::deadline(timeout))?;
        Ok((responses.map_err(|status| Error::from_status(&status))?.into_inner(), place))
    }

    /// A place on the first connection that has one, and that connection. Connections without streams are closed, except
    /// the client's first.
    fn place(&self) -> (QueueClient<Channel>, StreamPlace) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = |connection: &WorkConnection| Arc::strong_count(&connection.streams) - 1;
        let at = match connections.iter().position(|connection| streams(connection) < STREAMS_MAX) {
            Some(at) => at,
            None => {
                connections.push(WorkConnection { channel: (self.connect)(), streams: Arc::default() });
                connections.len() - 1
            }
        };
        let WorkConnection { channel, streams: stream } = connections[at].clone();
        let mut number = 0;
        connections.retain(|connection| {
            number += 1;
            number == 1 || streams(connection) > 0
        });
        (QueueClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX), StreamPlace(stream))
    }
}

impl fmt::Debug for WorkConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("WorkConnections").field("connections", &connections.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tonic::transport::Endpoint;

    #[tokio::test]
    async fn q7_streams_are_spread_over_as_many_connections_as_they_need() {
        let opened = Arc::new(AtomicUsize::new(0));
        let channel = || Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let connections = WorkConnections::new(channel(), None, {
            let opened = opened.clone();
            move || {
                opened.fetch_add(1, Ordering::SeqCst);
                Endpoint::from_static("http://127.0.0.1:1").connect_lazy()
            }
        });
        let open = || connections.connections.lock().unwrap().len();
        let mut places: Vec<_> = (0..STREAMS_MAX).map(|_| connections.place()).collect();
        assert_eq!((opened.load(Ordering::SeqCst), open()), (0, 1));
        places.extend((0..STREAMS_MAX + 1).map(|_| connections.place()));
        assert_eq!((opened.load(Ordering::SeqCst), open()), (2, 3));
        // A place that is free is taken before a connection is opened.
        places.remove(5);
        places.push(connections.place());
        places.remove(STREAMS_MAX + 5);
        places.push(connections.place());
        assert_eq!((opened.load(Ordering::SeqCst), open()), (2, 3));
        places.clear();
        let _one = connections.place();
        assert_eq!(open(), 1, "connections without streams are closed");
    }
}
