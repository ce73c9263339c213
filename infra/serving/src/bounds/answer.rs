//! One call, until its answer has ended; and the body of the answer, whose bytes count until the caller takes them.

use super::admission::Caller;
use super::metrics::note_answer_refused;
use super::refusal::too_many_unread_bytes;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A call that has begun, and whose answer has not ended.
pub(crate) struct OpenCall {
    caller: Arc<Caller>,
    /// It has a place among the streams of requests.
    is_stream: bool,
}

impl OpenCall {
    /// `None`: it is a stream of requests, and too many of them are open.
    pub(super) fn begin(caller: Arc<Caller>, is_stream: bool) -> Option<OpenCall> {
        if is_stream && !caller.begin_stream() {
            return None;
        }
        caller.begin_call();
        Some(OpenCall { caller, is_stream })
    }

    /// Ends it with an answer that has these headers and no body.
    pub(super) fn end_without_body(self, headers: &mut HeaderMap) {
        self.caller.unread().hand_out_headers(headers);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.caller.end_call();
        if self.is_stream {
            self.caller.end_stream();
        }
    }
}

/// The body of an answer, as the transport reads it.
pub(super) struct BoundedAnswer {
    inner: Body,
    call: OpenCall,
    /// A refusal of such an answer is a status at its end. Others just end.
    is_grpc: bool,
    /// The transport has got some bytes of it.
    has_data: bool,
    has_ended: bool,
}

impl BoundedAnswer {
    pub(super) fn new(inner: Body, call: OpenCall, is_grpc: bool) -> BoundedAnswer {
        BoundedAnswer { inner, call, is_grpc, has_data: false, has_ended: false }
    }

    fn refuse(&mut self) -> Result<Frame<Bytes>, axum::BoxError> {
        note_answer_refused();
        self.has_ended = true;
        // The rest of the answer takes memory, too.
        self.inner = Body::empty();
        let refused = too_many_unread_bytes();
        let mut trailers = HeaderMap::new();
        if self.is_grpc && refused.add_header(&mut trailers).is_ok() {
            self.call.caller.unread().hand_out_headers(&mut trailers);
            return Ok(Frame::trailers(trailers));
        }
        Err(refused.into())
    }
}

impl HttpBody for BoundedAnswer {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(match frame?.into_data() {
            Ok(bytes) if bytes.is_empty() => Ok(Frame::data(bytes)),
            Ok(bytes) => match self.call.caller.unread().hand_out(bytes) {
                Some(bytes) => {
                    self.has_data = true;
                    Ok(Frame::data(bytes))
                }
                None => self.refuse(),
            },
            Err(mut frame) => {
                if let Some(trailers) = frame.trailers_mut() {
                    self.call.caller.unread().hand_out_trailers(trailers, self.has_data);
                }
                Ok(frame)
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::Bounds;
    use super::super::limits::Limits;
    use super::*;
    use axum::body::to_bytes;
    use axum::http::HeaderValue;
    use axum::http::header::CONTENT_TYPE;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use tonic::{Code, Status};

    fn caller() -> Arc<Caller> {
        let limits = Limits { connection_unread_bytes_max: 100, ..Limits::default() };
        Bounds::new(limits).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone()
    }

    fn answer(caller: &Arc<Caller>, bytes: usize, is_grpc: bool) -> Body {
        Body::new(BoundedAnswer::new(vec![7; bytes].into(), OpenCall::begin(caller.clone(), false).unwrap(), is_grpc))
    }

    async fn frame(body: &mut Body) -> Option<Frame<Bytes>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.transpose().unwrap()
    }

    #[tokio::test]
    async fn s1_an_answer_beyond_the_bytes_that_are_not_read_ends_with_a_status() {
        let caller = caller();
        let mut kept = answer(&caller, 90, true);
        let unread = frame(&mut kept).await.unwrap().into_data().unwrap();
        assert_eq!(unread, vec![7; 90]);
        let mut refused = answer(&caller, 11, true);
        let trailers = frame(&mut refused).await.unwrap().into_trailers().unwrap();
        assert_eq!(Status::from_header_map(&trailers).unwrap().code(), Code::Unavailable);
        assert!(trailers.values().any(|value| value.is_sensitive()), "they count, too");
        assert!(refused.is_end_stream() && frame(&mut refused).await.is_none());
        assert!(to_bytes(answer(&caller, 11, false), 100).await.is_err(), "HTTP ends without its last bytes");
        assert_eq!(to_bytes(answer(&caller, 10, true), 100).await.unwrap(), vec![7; 10]);
        drop(unread);
        assert_eq!(to_bytes(answer(&caller, 100, true), 100).await.unwrap(), vec![7; 100]);
    }

    /// A body of these frames.
    struct Given(VecDeque<Frame<Bytes>>);

    impl HttpBody for Given {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    #[tokio::test]
    async fn s1_trailers_count_if_nothing_precedes_them() {
        let caller = caller();
        let are_counted = async |data: Option<Bytes>| {
            let trailers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("x"))]);
            let frames = data.into_iter().map(Frame::data).chain([Frame::trailers(trailers)]).collect();
            let call = OpenCall::begin(caller.clone(), false).unwrap();
            let mut answer = Body::new(BoundedAnswer::new(Body::new(Given(frames)), call, true));
            loop {
                if let Ok(trailers) = frame(&mut answer).await.unwrap().into_trailers() {
                    return trailers[CONTENT_TYPE].is_sensitive();
                }
            }
        };
        assert!(are_counted(None).await && !are_counted(Some(Bytes::from_static(b"x"))).await);
    }
}
