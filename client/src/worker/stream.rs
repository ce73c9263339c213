//! How a worker's Work stream is opened, and its two sides: a stream for this worker alone, or a subscription of one that
//! workers share.

use super::settings::Settings;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::shared_streams::{SharedRequests, SharedResponses};
use crate::work_connections::StreamPlace;
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio_stream::wrappers::ReceiverStream;

/// An open stream.
pub(super) struct Stream {
    pub(super) requests: Requests,
    pub(super) responses: Responses,
}

/// The writing side. Dropping it closes the stream or the subscription: the server sends the outstanding results.
pub(super) enum Requests {
    Own(mpsc::Sender<wire::WorkRequest>),
    Shared(SharedRequests),
}

/// The reading side.
pub(super) enum Responses {
    Own { responses: Box<tonic::Streaming<wire::WorkResponse>>, _place: StreamPlace },
    Shared(SharedResponses),
}

/// Room for one request.
pub(super) struct Room {
    permit: OwnedPermit<wire::WorkRequest>,
    subscription: u32,
}

/// Opens a stream after `delay`.
pub(super) fn open(settings: &Settings, delay: Duration) -> impl Future<Output = Result<Stream>> + Send + use<> {
    let (client, start, is_shared) = (settings.client.clone(), settings.start(), settings.shared_stream);
    async move {
        tokio::time::sleep(delay).await;
        if is_shared { subscribe(&client, start).await } else { open_own(&client, start).await }
    }
}

async fn subscribe(client: &Client, start: wire::WorkStart) -> Result<Stream> {
    let (requests, responses) = client.shared.subscribe(&client.work, client.calls.call_timeout, start).await?;
    Ok(Stream { requests: Requests::Shared(requests), responses: Responses::Shared(responses) })
}

async fn open_own(client: &Client, start: wire::WorkStart) -> Result<Stream> {
    // While one request waits to be sent, everything new is gathered for the next.
    let (requests, receiver) = mpsc::channel(1);
    let first = wire::WorkRequest { start: Some(start), ..wire::WorkRequest::default() };
    requests.try_send(first).map_err(|_| Error::Protocol("a new channel is full".to_owned()))?;
    let (responses, place) = client.work.open(ReceiverStream::new(receiver), client.calls.call_timeout).await?;
    let responses = Responses::Own { responses: Box::new(responses), _place: place };
    Ok(Stream { requests: Requests::Own(requests), responses })
}

impl Requests {
    /// Waits for room; `None`: the stream broke.
    pub(super) async fn room(&self) -> Option<Room> {
        let (sender, subscription) = match self {
            Requests::Own(sender) => (sender, 0),
            Requests::Shared(shared) => (shared.sender(), shared.number),
        };
        let permit = sender.clone().reserve_owned().await.ok()?;
        Some(Room { permit, subscription })
    }
}

impl Room {
    pub(super) fn send(self, request: wire::WorkRequest) {
        self.permit.send(wire::WorkRequest { subscription: self.subscription, ..request });
    }
}

impl Responses {
    /// The next response; `None`: the server ended the stream or the subscription. Cancel safe.
    pub(super) async fn message(&mut self) -> Result<Option<wire::WorkResponse>> {
        match self {
            Responses::Own { responses, .. } => responses.message().await.map_err(|status| Error::from_status(&status)),
            Responses::Shared(shared) => shared.message().await,
        }
    }
}
