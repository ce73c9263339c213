//! The body of one request, within limits of time and memory.
//!
//! gRPC messages are passed on only when they are there in full. The decoder reserves what a message's length says, so
//! five bytes would cost megabytes; what is held here never exceeds what has arrived.

use super::admission::Caller;
use super::elements::{Count, ELEMENTS_MAX};
use super::limits::MESSAGE_BYTES_MAX;
use super::methods::Methods;
use super::metrics::note_unfinished;
use super::refusal::{
    body_too_slow, too_many_elements, too_many_unfinished_bytes, too_many_unfinished_requests, unreadable,
};
use crate::unread::{UnreadCall, note_unread};
use axum::body::{Body, Bytes, HttpBody};
use bytes::{Buf, BytesMut};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// Before each gRPC message: a flag, and the length of the message.
const PREFIX_BYTES: usize = 5;
/// The decoder of a stream keeps the memory of its largest message until the stream ends. So much of it is not charged: usual
/// messages have less.
const KEPT_UNCHARGED_BYTES: usize = 2 * 1024;

/// How a body is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One gRPC message.
    Message,
    /// Any number of gRPC messages: the first one at once, the others at any time.
    Messages,
    /// Bytes.
    Plain,
}

/// The body, as its service reads it.
pub(super) struct BoundedBody {
    inner: Body,
    form: Form,
    /// What its messages are, if they are those of a known method.
    of: Option<(Arc<Methods>, usize)>,
    caller: Arc<Caller>,
    /// The begin of a message that is not there in full.
    held: BytesMut,
    /// What the decoder keeps of it.
    kept: u64,
    /// The bytes that the caller is charged with.
    charged: u64,
    /// Runs while bytes are missing; the request is counted as long as it does.
    too_late: Option<Pin<Box<Sleep>>>,
    /// A whole message has come.
    has_begun: bool,
    has_ended: bool,
}

impl BoundedBody {
    pub(super) fn new(inner: Body, form: Form, of: Option<(Arc<Methods>, usize)>, caller: Arc<Caller>) -> BoundedBody {
        let (held, kept, charged, too_late) = (BytesMut::new(), 0, 0, None);
        BoundedBody { inner, form, of, caller, held, kept, charged, too_late, has_begun: false, has_ended: false }
    }

    /// Takes what has arrived; returns what can be passed on.
    fn take(&mut self, arrived: Bytes) -> Result<Option<Bytes>, Status> {
        self.caller.arrived().take(arrived.len() as u64);
        if self.form == Form::Plain {
            return self.charge(self.charged + arrived.len() as u64).map(|()| Some(arrived));
        }
        let mut arrived = arrived;
        if self.held.is_empty() {
            let whole = self.whole_messages(&arrived)?;
            let passed_on = arrived.split_to(whole);
            self.charge(self.kept + arrived.len() as u64)?;
            self.held.extend_from_slice(&arrived);
            return Ok((whole > 0).then_some(passed_on));
        }
        self.charge(self.charged + arrived.len() as u64)?;
        self.held.extend_from_slice(&arrived);
        let held = std::mem::take(&mut self.held);
        let whole = self.whole_messages(&held)?;
        let mut passed_on = held;
        if whole < passed_on.len() {
            // A part that is split off would keep the memory of all.
            self.held = match whole {
                0 => std::mem::take(&mut passed_on),
                whole => BytesMut::from(&passed_on[whole..]),
            };
            passed_on.truncate(whole);
        }
        self.charge(self.kept + self.held.len() as u64)?;
        Ok((whole > 0).then(|| passed_on.freeze()))
    }

    /// How many bytes at the begin are messages that are there in full. A message that is too long passes with all that
    /// follows: its service refuses it.
    fn whole_messages(&mut self, bytes: &[u8]) -> Result<usize, Status> {
        let mut rest = bytes;
        while let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() {
            let length = (&prefix[1..]).get_u32() as usize;
            if length > MESSAGE_BYTES_MAX {
                return Ok(bytes.len());
            }
            let Some(message) = rest.get(PREFIX_BYTES..PREFIX_BYTES + length) else { break };
            if let Some((methods, input)) = &self.of {
                match methods.shapes.count(*input, message) {
                    Count::Fits => {}
                    Count::TooMany => {
                        note_unfinished("too_many_elements");
                        return Err(too_many_elements(ELEMENTS_MAX));
                    }
                    Count::Malformed => {
                        note_unread(UnreadCall::Unreadable);
                        return Err(unreadable());
                    }
                }
            }
            if self.form == Form::Messages {
                self.kept = self.kept.max(length.saturating_sub(KEPT_UNCHARGED_BYTES) as u64);
            }
            rest = &rest[PREFIX_BYTES + length..];
        }
        Ok(bytes.len() - rest.len())
    }

    /// Sets what the caller is charged with.
    fn charge(&mut self, bytes: u64) -> Result<(), Status> {
        if bytes <= self.charged {
            self.caller.release(self.charged - bytes);
        } else if !self.caller.hold(bytes - self.charged) {
            note_unfinished("too_many_bytes");
            return Err(too_many_unfinished_bytes());
        }
        self.charged = bytes;
        Ok(())
    }

    /// Whether the time of the request runs.
    fn is_unfinished(&self) -> bool {
        self.form != Form::Messages || !self.has_begun || !self.held.is_empty()
    }

    /// Ready when the request had its time, or too many wait for bytes.
    fn poll_too_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if !self.is_unfinished() {
            self.stop_waiting();
            return Poll::Pending;
        }
        let time = self.caller.bounds().limits.request();
        if self.too_late.is_none() && !self.caller.begin_waiting() {
            note_unfinished("too_many_requests");
            return Poll::Ready(too_many_unfinished_requests());
        }
        let too_late = self.too_late.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(too_late.as_mut().poll(cx));
        note_unfinished("too_slow");
        Poll::Ready(body_too_slow(time))
    }

    fn stop_waiting(&mut self) {
        if self.too_late.take().is_some() {
            self.caller.end_waiting();
        }
    }

    /// The transport has nothing more: a body that has ended is not polled again, neither here nor when this is dropped.
    fn end(&mut self) {
        self.has_ended = true;
        self.inner = Body::empty();
        self.stop_waiting();
    }

    fn fail(&mut self, why: Status) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        self.has_ended = true;
        self.held = BytesMut::new();
        self.stop_waiting();
        Poll::Ready(Some(Err(why.into())))
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        loop {
            if this.has_ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
                let why = ready!(this.poll_too_late(cx));
                return this.fail(why);
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(arrived) => match this.take(arrived) {
                        Ok(Some(passed_on)) => {
                            this.has_begun = true;
                            if this.form == Form::Messages {
                                // What is held belongs to the next message, whose time begins now.
                                this.stop_waiting();
                            }
                            return Poll::Ready(Some(Ok(Frame::data(passed_on))));
                        }
                        Ok(None) => {}
                        Err(why) => return this.fail(why),
                    },
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(error)) => {
                    this.end();
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    this.end();
                    if !this.held.is_empty() {
                        // The decoder says what is wrong with it.
                        return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.held).freeze()))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || (self.held.is_empty() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        self.stop_waiting();
        if self.charged > 0 {
            self.caller.release(self.charged);
        }
        // The transport drops what it holds of the rest, and so that is no longer unread.
        let mut without_waker = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.inner).poll_frame(&mut without_waker) {
            self.caller.arrived().take(frame.data_ref().map_or(0, |bytes| bytes.len() as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::Bounds;
    use super::super::limits::Limits;
    use super::*;
    use axum::BoxError;
    use futures::StreamExt;
    use futures::channel::mpsc;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use tonic::Code;

    type Sender = mpsc::UnboundedSender<Result<Bytes, BoxError>>;

    fn caller() -> Arc<Caller> {
        let limits = Limits { connection_unfinished_bytes_max: 100, request_ms: 1_000, ..Limits::default() };
        Bounds::new(limits).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone()
    }

    fn body(form: Form, caller: &Arc<Caller>) -> (Sender, axum::body::BodyDataStream) {
        let (sender, sent) = mpsc::unbounded();
        let bounded = BoundedBody::new(Body::from_stream(sent), form, None, caller.clone());
        (sender, Body::new(bounded).into_data_stream())
    }

    fn messages(lengths: &[u8]) -> Vec<u8> {
        lengths
            .iter()
            .flat_map(|length| [&[0, 0, 0, 0, *length][..], &vec![*length; usize::from(*length)]].concat())
            .collect()
    }

    fn refused(error: axum::Error) -> Status {
        *error.into_inner().downcast::<Status>().unwrap()
    }

    #[tokio::test]
    async fn s1_messages_are_passed_on_whole_however_they_arrive() {
        let all = messages(&[3, 0, 40, 7]);
        for size in 1..=all.len() {
            let caller = caller();
            let (sender, passed_on) = body(Form::Messages, &caller);
            for chunk in all.chunks(size) {
                sender.unbounded_send(Ok(Bytes::copy_from_slice(chunk))).unwrap();
            }
            drop(sender);
            let passed_on: Vec<Bytes> = passed_on.map(|bytes| bytes.unwrap()).collect().await;
            let mut bounded = BoundedBody::new(Body::empty(), Form::Messages, None, caller.clone());
            for bytes in &passed_on {
                assert_eq!(bounded.whole_messages(bytes).unwrap(), bytes.len(), "{size}: {passed_on:?}");
            }
            assert_eq!(passed_on.concat(), all, "{size}");
            assert!(caller.hold(100), "nothing is charged any more");
        }
    }

    #[tokio::test]
    async fn s1_the_end_of_a_broken_message_and_a_message_that_is_too_long_are_left_to_the_decoder() {
        for bytes in [&[0, 0, 0, 0][..], &[0, 0, 0, 0, 9, 1], &[0, 255, 0, 0, 0, 1]] {
            let (sender, passed_on) = body(Form::Message, &caller());
            sender.unbounded_send(Ok(Bytes::copy_from_slice(bytes))).unwrap();
            drop(sender);
            let passed_on: Vec<Bytes> = passed_on.map(|bytes| bytes.unwrap()).collect().await;
            assert_eq!(passed_on.concat(), bytes);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s1_time_runs_while_bytes_are_missing() {
        for form in [Form::Message, Form::Plain] {
            let (_sender, mut passed_on) = body(form, &caller());
            let status = refused(passed_on.next().await.unwrap().unwrap_err());
            assert_eq!(status.code(), Code::ResourceExhausted, "{form:?}");
            assert!(passed_on.next().await.is_none());
        }
        let (_sender, mut passed_on) = body(Form::Messages, &caller());
        let status = refused(passed_on.next().await.unwrap().unwrap_err());
        assert_eq!(status.code(), Code::ResourceExhausted, "a stream of requests begins with one");
        let (sender, mut passed_on) = body(Form::Messages, &caller());
        for _ in 0..3 {
            sender.unbounded_send(Ok(messages(&[5]).into())).unwrap();
            assert_eq!(passed_on.next().await.unwrap().unwrap(), messages(&[5]));
            let silence = tokio::time::timeout(Duration::from_secs(60), passed_on.next()).await;
            assert!(silence.is_err(), "a stream of requests may be silent");
        }
        sender.unbounded_send(Ok(Bytes::from_static(&[0, 0]))).unwrap();
        assert_eq!(refused(passed_on.next().await.unwrap().unwrap_err()).code(), Code::ResourceExhausted);
    }

    #[tokio::test(start_paused = true)]
    async fn s1_the_time_of_a_message_begins_with_its_first_byte() {
        let (sender, mut passed_on) = body(Form::Messages, &caller());
        let all = messages(&[5, 5]);
        let send = |bytes: &[u8]| sender.unbounded_send(Ok(Bytes::copy_from_slice(bytes))).unwrap();
        send(&all[..3]);
        assert!(futures::poll!(passed_on.next()).is_pending());
        tokio::time::advance(Duration::from_millis(900)).await;
        send(&all[3..12]);
        assert_eq!(passed_on.next().await.unwrap().unwrap(), messages(&[5]));
        assert!(futures::poll!(passed_on.next()).is_pending());
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(futures::poll!(passed_on.next()).is_pending(), "the second message has begun 900 ms ago");
        send(&all[12..]);
        assert_eq!(passed_on.next().await.unwrap().unwrap(), messages(&[5]));
    }

    #[tokio::test]
    async fn s1_requests_that_wait_for_bytes_are_bounded() {
        let limits = Limits { unfinished_requests_max: 4, ..Limits::default() };
        let caller = Bounds::new(limits).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone();
        for round in 0..3 {
            let (begun, mut first) = body(Form::Messages, &caller);
            let (_silent, mut second) = body(Form::Message, &caller);
            let (_other, mut third) = body(Form::Plain, &caller);
            assert!(futures::poll!(first.next()).is_pending() && futures::poll!(second.next()).is_pending());
            let why = refused(third.next().await.unwrap().unwrap_err());
            assert!(why.message().contains("too many requests"), "{round}: {why:?}");
            // A stream that has begun is not counted, so there is room for another request.
            begun.unbounded_send(Ok(messages(&[5]).into())).unwrap();
            assert!(first.next().await.unwrap().is_ok() && futures::poll!(first.next()).is_pending());
            let (_another, mut fourth) = body(Form::Plain, &caller);
            assert!(futures::poll!(fourth.next()).is_pending());
        }
    }

    #[tokio::test]
    async fn s1_bytes_are_charged_until_their_message_is_whole() {
        let caller = caller();
        let (one, mut of_one) = body(Form::Message, &caller);
        let (two, mut of_two) = body(Form::Message, &caller);
        one.unbounded_send(Ok(Bytes::copy_from_slice(&messages(&[90])[..90]))).unwrap();
        assert!(futures::poll!(of_one.next()).is_pending());
        two.unbounded_send(Ok(Bytes::copy_from_slice(&messages(&[90])[..20]))).unwrap();
        let status = refused(of_two.next().await.unwrap().unwrap_err());
        assert!(status.message().contains("too many bytes"), "{status:?}");
        one.unbounded_send(Ok(Bytes::copy_from_slice(&messages(&[90])[90..]))).unwrap();
        assert_eq!(of_one.next().await.unwrap().unwrap(), messages(&[90]));
        assert!(caller.hold(100), "nothing is charged any more");
    }

    /// A message of zeros.
    fn message(bytes: u32) -> Bytes {
        [&[0][..], &bytes.to_be_bytes(), &vec![0; bytes as usize]].concat().into()
    }

    #[test]
    fn s1_a_byte_of_the_next_message_does_not_keep_the_memory_of_the_one_before() {
        let caller = Bounds::new(Limits::default()).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone();
        let mut body = BoundedBody::new(Body::empty(), Form::Message, None, caller);
        let message = message(200_000);
        assert_eq!(body.take(message.slice(..150_000)).unwrap(), None);
        let arrived = [&message[150_000..], &[0]].concat();
        assert_eq!(body.take(arrived.into()).unwrap().unwrap(), message);
        assert_eq!((&body.held[..], body.charged), (&[0][..], 1));
        assert!(body.held.capacity() < 1_000, "{} bytes", body.held.capacity());
    }

    #[test]
    fn s1_a_stream_is_charged_with_its_largest_message_until_it_ends() {
        let limits = Limits { connection_unfinished_bytes_max: 8 << 20, ..Limits::default() };
        let caller = Bounds::new(limits).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone();
        let stream = || BoundedBody::new(Body::empty(), Form::Messages, None, caller.clone());
        let (mut first, mut second) = (stream(), stream());
        assert!(first.take(message(6 << 20)).is_ok() && first.take(message(10)).is_ok());
        assert_eq!(first.charged, (6 << 20) - KEPT_UNCHARGED_BYTES as u64);
        assert!(second.take(message(KEPT_UNCHARGED_BYTES as u32)).is_ok());
        assert_eq!(second.charged, 0, "usual messages cost nothing");
        assert!(second.take(message(3 << 20)).is_err());
        drop(first);
        let mut third = stream();
        assert!(third.take(message(8 << 20)).is_ok());
        drop((second, third));
        assert!(caller.hold(8 << 20), "nothing is charged any more");
        // One message is decoded at once.
        caller.release(8 << 20);
        let mut single = BoundedBody::new(Body::empty(), Form::Message, None, caller);
        assert!(single.take(message(6 << 20)).is_ok());
        assert_eq!(single.charged, 0);
    }
}
