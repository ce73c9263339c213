//! Calls of the view counter over HTTP/2, one at a time, for loads whose client need not be cheap.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{Request, StatusCode};
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection; clones share it.
#[derive(Clone)]
pub(super) struct ViewClient {
    calls: SendRequest<Bytes>,
    url: String,
}

impl ViewClient {
    /// Connects to `host:port`.
    pub(super) async fn connect(authority: &str) -> Result<ViewClient> {
        let tcp = TcpStream::connect(authority).await?;
        tcp.set_nodelay(true)?;
        let (calls, connection) = h2::client::handshake(tcp).await?;
        tokio::spawn(connection);
        Ok(ViewClient { calls, url: format!("http://{authority}") })
    }

    /// Posts a batch, all of which must be accepted.
    pub(super) async fn post_batch(&self, body: Vec<u8>) -> Result<()> {
        let request = Request::post(format!("{}/v1/views:batch", self.url)).header("content-type", "application/json");
        let (status, answer) = self.call(request.body(())?, Some(body.into())).await?;
        let is_accepted = status == StatusCode::ACCEPTED && !answer.windows(7).any(|part| part == b"\"error\"");
        ensure!(is_accepted, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// The views of a video; `None`: the counters did not answer in time, and no earlier count is known (`NO_COUNT`).
    pub(super) async fn view_count(&self, video: &str) -> Result<Option<u64>> {
        let request = Request::get(format!("{}/v1/videos/{video}/views", self.url)).body(())?;
        let (status, answer) = self.call(request, None).await?;
        let answer: Value = serde_json::from_slice(&answer).with_context(|| format!("{status}: no JSON"))?;
        if answer["error"]["reason"] == "NO_COUNT" {
            return Ok(None);
        }
        ensure!(status == StatusCode::OK, "{status}: {answer}");
        answer["viewCount"].as_u64().context("a read without viewCount").map(Some)
    }

    async fn call(&self, request: Request<()>, body: Option<Bytes>) -> Result<(StatusCode, Bytes)> {
        let mut calls = self.calls.clone().ready().await?;
        let (response, mut sender) = calls.send_request(request, body.is_none())?;
        if let Some(body) = body {
            sender.send_data(body, true)?;
        }
        let (head, mut body) = response.await?.into_parts();
        let mut answer = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            answer.extend_from_slice(&part);
        }
        Ok((head.status, answer.freeze()))
    }
}
