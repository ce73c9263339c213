//! The accept loop, and the connections that it makes.

use super::admission::{Admission, Bounds, Caller};
use super::arrived::FIRST_WINDOW_BYTES;
use super::frames::{Frame, Frames};
use super::head::Head;
use super::metrics::{Closed, Refused, note_closed};
use crate::tls::{Handshake, Tls, Wire};
use futures::Stream;
use futures::stream::unfold;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// The pause after an accept for which the process has no file left.
const NO_FILES_PAUSE: Duration = Duration::from_millis(100);
/// How many silent connections are closed before each pause: a caller may wait behind hundreds of them. Those after the first one must be
/// so old: a caller whose connection has just been accepted is about to make its request.
const NO_FILES_CLOSED: usize = 16;
const SILENT_MIN: Duration = Duration::from_millis(250);

/// The connections of a listener that are admitted.
pub(crate) fn accept(
    listener: TcpListener,
    bounds: Arc<Bounds>,
    tls: Option<Arc<Tls>>,
) -> impl Stream<Item = io::Result<Connection>> + Send + 'static {
    unfold((listener, bounds, tls), |(listener, bounds, tls)| async move {
        let (tcp, admission) = next(&listener, &bounds).await;
        let wire = Wire::new(tcp, tls.as_ref().map(|tls| tls.acceptor()));
        Some((Ok(Connection::new(wire, admission)), (listener, bounds, tls)))
    })
}

async fn next(listener: &TcpListener, bounds: &Arc<Bounds>) -> (TcpStream, Admission) {
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => match bounds.admit(peer.ip()) {
                Ok(admission) => {
                    if let Err(error) = tcp.set_nodelay(true) {
                        tracing::debug!(%error, "a connection that was closed at once");
                    }
                    return (tcp, admission);
                }
                // Closes it.
                Err(why) => bounds.note_refused(why),
            },
            Err(error) if is_without_files(&error) => {
                bounds.note_refused(Refused::Files);
                bounds.make_room(Duration::ZERO);
                (1..NO_FILES_CLOSED).for_each(|_| bounds.make_room(SILENT_MIN));
                sleep(NO_FILES_PAUSE).await;
            }
            Err(error) => tracing::debug!(%error, "a connection that ended before it was accepted"),
        }
    }
}

fn is_without_files(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM))
}

/// An admitted connection. It ends when no bytes come in time, when a head over HTTP/1 does not end in time, when it has made no
/// request and another connection needs its place, and when it does not read its answers.
pub(crate) struct Connection {
    wire: Wire,
    admission: Admission,
    /// Runs until the first bytes; `None` once a request was made.
    silent_too_long: Option<Pin<Box<Sleep>>>,
    head: Head,
    /// The frames of HTTP/2 that were read and written.
    read: Frames,
    written: Frames,
    /// The bytes of answers over HTTP/2 for which the other end has room.
    window: u64,
    /// At the last flush there was room for all answers.
    had_room: bool,
    /// Nothing has been written since the last flush.
    is_flushed: bool,
    /// The other end has left no room for bytes.
    is_blocked: bool,
    /// Runs while the end of a head over HTTP/1 is missing.
    head_too_late: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(wire: Wire, admission: Admission) -> Connection {
        let silent_too_long = Some(Box::pin(sleep(admission.caller.bounds().limits.first_bytes())));
        Connection {
            wire,
            admission,
            silent_too_long,
            head: Head::default(),
            read: Frames::default(),
            written: Frames::default(),
            window: FIRST_WINDOW_BYTES,
            had_room: true,
            is_flushed: true,
            is_blocked: false,
            head_too_late: None,
        }
    }

    /// An error if the connection does not read its answers, holds requests that no call reads, or has lost its place. While it waits for
    /// room to write, the transport may not read it, so it checks before each write, too.
    fn check_end(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.admission.caller.unread().poll_end(cx) {
            Poll::Ready(()) => Err(io::Error::other(
                "it does not read its answers, no call reads its requests, or another connection takes its place",
            )),
            Poll::Pending => Ok(()),
        }
    }

    /// Notes whether the other end has left no room for what was to be written.
    fn note_blocked(&mut self, is_blocked: bool) {
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            self.admission.caller.unread().set_blocked(is_blocked);
        }
    }

    /// Ready if the first bytes have not come in time.
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.admission.caller.has_called() {
            self.silent_too_long = None;
        }
        let Some(too_long) = &mut self.silent_too_long else { return Poll::Pending };
        // From there on heads have a limit, and over HTTP/2 the transport expects an answer to its pings.
        if !self.head.has_begun() && too_long.as_mut().poll(cx).is_ready() {
            note_closed(Closed::Silent);
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
    }

    /// Ready if the head of a request has begun and had its time. Bytes that come one by one do not prolong it.
    fn poll_head_too_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.head.is_unfinished() {
            return Poll::Pending;
        }
        let time = self.admission.caller.bounds().limits.request();
        let too_late = self.head_too_late.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(too_late.as_mut().poll(cx));
        note_closed(Closed::HeadTooSlow);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// Notes which of these bytes the transport gives back to the caller's window, and which ones take room there.
    fn note_written(&mut self, slices: &[IoSlice<'_>], written: usize) {
        if !self.head.is_http2() {
            return;
        }
        let (mut rest, mut given_back, mut sent) = (written, 0, 0);
        for slice in slices {
            let part = &slice[..slice.len().min(rest)];
            rest -= part.len();
            self.written.note(part, |frame| match frame {
                Frame::WindowUpdate(bytes) => given_back += u64::from(bytes),
                Frame::Data(bytes) => sent += u64::from(bytes),
                Frame::Reset => {}
            });
        }
        self.window = self.window.saturating_sub(sent);
        if given_back > 0 {
            self.admission.caller.arrived().give_back(given_back);
        }
    }

    /// Notes frames that have come.
    fn note_read(&mut self, bytes: &[u8]) {
        let (mut arrived, mut resets, had_window) = (0, 0, self.window);
        self.read.note(self.head.note(bytes), |frame| match frame {
            Frame::Data(bytes) => arrived += u64::from(bytes),
            Frame::WindowUpdate(bytes) => self.window += u64::from(bytes),
            Frame::Reset => resets += 1,
        });
        if arrived > 0 {
            self.admission.caller.arrived().arrive(arrived);
        }
        if resets > 0 {
            let unread = self.admission.caller.unread();
            // HTTP/2 drops the last frame that it has written only after the flush.
            self.had_room |= self.is_flushed && unread.has_room(had_window);
            unread.note_resets(resets);
        }
    }

    /// Notes that all is written that HTTP/2 has given out: the window is then the same here as there.
    fn note_flush(&mut self) {
        if self.head.is_http2() {
            self.is_flushed = true;
            self.had_room = self.admission.caller.unread().note_flush(self.window, self.had_room);
        }
    }

    /// Goes on with the TLS handshake.
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let caller = &self.admission.caller;
        match ready!(self.wire.poll_handshake(cx)) {
            Ok(Handshake::Done) => {}
            Ok(Handshake::Certificate(certificate)) => caller.shows(certificate),
            Err(error) => {
                note_closed(Closed::Handshake);
                tracing::debug!(%error, "a TLS handshake has failed");
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_end(cx)?;
        if self.silent_too_long.is_some()
            && let Poll::Ready(end) = self.poll_silent(cx)
        {
            return Poll::Ready(Err(end));
        }
        ready!(self.poll_handshake(cx))?;
        let (begun, is_open) = self.admission.caller.calls_so_far();
        if self.head.is_too_large(begun, is_open) {
            note_closed(Closed::HeadTooLarge);
            return Poll::Ready(Err(io::Error::other("the head of a request is too large")));
        }
        // The time of a head that has ended is not that of the next one.
        if !self.head.is_unfinished() {
            self.head_too_late = None;
        }
        ready!(self.admission.caller.arrived().poll_room());
        let before = into.filled().len();
        let this = &mut *self;
        let read = this.wire.poll_read(cx, into);
        this.note_read(&into.filled()[before..]);
        // Bytes that are there may be its end.
        if read.is_pending()
            && let Poll::Ready(end) = self.poll_head_too_late(cx)
        {
            return Poll::Ready(Err(end));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_end(cx)?;
        ready!(self.poll_handshake(cx))?;
        let written = self.wire.poll_write(cx, slices);
        self.note_blocked(written.is_pending());
        let written = ready!(written)?;
        self.is_flushed = false;
        self.note_written(slices, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_end(cx)?;
        let flushed = self.wire.poll_flush(cx);
        self.note_blocked(flushed.is_pending());
        if flushed.is_ready() {
            self.note_flush();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_end(cx)?;
        // With TLS it writes, too.
        let shut_down = self.wire.poll_shutdown(cx);
        self.note_blocked(shut_down.is_pending());
        shut_down
    }
}

impl Connected for Connection {
    type ConnectInfo = Arc<Caller>;

    fn connect_info(&self) -> Arc<Caller> {
        self.admission.caller.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;
    use futures::StreamExt as _;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const HEAD: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-slow: ";
    const LIMIT: Duration = Duration::from_millis(300);

    /// A connection with this limit for heads, and its other end.
    async fn connection() -> (Connection, TcpStream) {
        connection_within(Limits { request_ms: LIMIT.as_millis() as u64, ..Limits::default() }).await
    }

    async fn connection_within(limits: Limits) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut accepted = Box::pin(accept(listener, Bounds::new(limits), None));
        (accepted.next().await.unwrap().unwrap(), caller)
    }

    /// Reads until the connection ends, as the transport does while it waits for a head; returns why it ends.
    async fn end(connection: &mut Connection) -> io::ErrorKind {
        let mut bytes = Vec::new();
        loop {
            match connection.read_buf(&mut bytes).await {
                Ok(0) => return io::ErrorKind::UnexpectedEof,
                Ok(_) => {}
                Err(error) => return error.kind(),
            }
        }
    }

    /// Sends a byte now and then, as long as there is another end.
    async fn drip(caller: &mut TcpStream) -> Infallible {
        loop {
            caller.write_all(b"x").await.unwrap();
            sleep(LIMIT / 20).await;
        }
    }

    #[tokio::test]
    async fn s1_bytes_one_by_one_do_not_prolong_the_time_of_a_head() {
        let (mut connection, mut caller) = connection().await;
        caller.write_all(HEAD).await.unwrap();
        let ended = tokio::select! {
            ended = timeout(Duration::from_secs(60), end(&mut connection)) => ended.unwrap(),
            never = drip(&mut caller) => match never {},
        };
        assert_eq!(ended, io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn s1_a_connection_is_idle_after_a_call_and_its_next_head_has_its_own_time() {
        let (mut connection, mut caller) = connection().await;
        caller.write_all(HEAD).await.unwrap();
        assert!(timeout(LIMIT / 10, end(&mut connection)).await.is_err());
        // The rest of the head comes, and the transport makes the call.
        connection.admission.caller.begin_call();
        assert!(timeout(2 * LIMIT, end(&mut connection)).await.is_err(), "its answer takes longer");
        connection.admission.caller.end_call();
        assert!(timeout(2 * LIMIT, end(&mut connection)).await.is_err(), "it is idle");
        caller.write_all(b"G").await.unwrap();
        let ended = timeout(Duration::from_secs(60), end(&mut connection)).await;
        assert_eq!(ended.unwrap(), io::ErrorKind::TimedOut);
    }

    /// Writes until the other end, which does not read, has left no room.
    async fn fill(connection: &mut Connection) {
        while let Ok(written) = timeout(LIMIT / 10, connection.write(&[0; 64 * 1024])).await {
            written.unwrap();
        }
        assert!(connection.admission.caller.unread().is_blocked());
    }

    /// Reads what comes, as long as there is another end.
    async fn drain(caller: &mut TcpStream) -> Infallible {
        let mut bytes = vec![0; 1024 * 1024];
        loop {
            caller.read_exact(&mut bytes).await.unwrap();
        }
    }

    /// Writes one more byte, and waits until there is room for it.
    async fn write(connection: &mut Connection) -> io::Result<usize> {
        timeout(Duration::from_secs(60), connection.write(b"x")).await.unwrap()
    }

    #[tokio::test]
    async fn s1_a_connection_without_room_to_write_ends_when_it_loses_its_place() {
        let (mut connection, _other_end) = connection().await;
        let caller = connection.admission.caller.clone();
        fill(&mut connection).await;
        let make_room = async { caller.bounds().make_room(Duration::ZERO) };
        let (written, ()) = tokio::join!(write(&mut connection), make_room);
        assert!(written.is_err());
    }

    #[tokio::test]
    async fn s1_a_connection_without_room_to_write_ends_in_time() {
        let limits = Limits { answer_ms: LIMIT.as_millis() as u64, ..Limits::default() };
        let (mut connection, _other_end) = connection_within(limits).await;
        let caller = connection.admission.caller.clone();
        fill(&mut connection).await;
        let written = tokio::select! {
            written = write(&mut connection) => written,
            never = caller.bounds().watch() => match never {},
        };
        assert!(written.is_err());
    }

    #[tokio::test]
    async fn s1_a_connection_that_is_read_again_has_room_to_write() {
        let (mut connection, mut other_end) = connection().await;
        fill(&mut connection).await;
        let written = tokio::select! {
            written = write(&mut connection) => written,
            never = drain(&mut other_end) => match never {},
        };
        assert_eq!(written.unwrap(), 1);
        assert!(!connection.admission.caller.unread().is_blocked());
    }

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const DATA: u8 = 0;
    const RST_STREAM: u8 = 3;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
    }

    /// Sends these bytes, as the other end, and reads them.
    async fn receive(connection: &mut Connection, other_end: &mut TcpStream, bytes: &[u8]) {
        other_end.write_all(bytes).await.unwrap();
        connection.read_exact(&mut vec![0; bytes.len()]).await.unwrap();
    }

    #[tokio::test]
    async fn s1_calls_that_are_reset_count_unless_there_is_room_for_all_answers() {
        let (mut connection, mut other_end) = connection().await;
        let unread = connection.admission.caller.unread().clone();
        let resets = frame(RST_STREAM, 1, &[0; 4]).repeat(3);
        receive(&mut connection, &mut other_end, &[PREFACE, &resets[..]].concat()).await;
        assert_eq!(unread.resets(), 3);
        connection.flush().await.unwrap();
        assert_eq!(unread.resets(), 0, "there is room for all answers: none of them waited");
        // An answer takes the whole window.
        let answer = frame(DATA, 1, &[0; FIRST_WINDOW_BYTES as usize]);
        let mut taken = vec![0; answer.len()];
        let (written, read) = tokio::join!(connection.write_all(&answer), other_end.read_exact(&mut taken));
        written.unwrap();
        read.unwrap();
        connection.flush().await.unwrap();
        // Room that comes together with a reset comes too late.
        let room = frame(WINDOW_UPDATE, 0, &10_u32.to_be_bytes());
        receive(&mut connection, &mut other_end, &[&resets[..], &room].concat()).await;
        connection.flush().await.unwrap();
        assert_eq!(unread.resets(), 3);
        receive(&mut connection, &mut other_end, &resets).await;
        connection.flush().await.unwrap();
        assert_eq!(unread.resets(), 3, "there was room for these");
        // HTTP/2 has written a frame, and drops it behind the flush.
        let written = unread.hand_out(vec![0; 10].into()).unwrap();
        connection.flush().await.unwrap();
        drop(written);
        receive(&mut connection, &mut other_end, &resets).await;
        connection.flush().await.unwrap();
        assert_eq!(unread.resets(), 3, "there was room for these, too");
        // The room is for another answer.
        let _waiting = unread.hand_out(vec![0; 10].into()).unwrap();
        receive(&mut connection, &mut other_end, &resets).await;
        connection.flush().await.unwrap();
        assert_eq!(unread.resets(), 6);
    }
}
