//! The accept loop, and the connections that it makes.

use super::admission::{Admission, Bounds, Caller};
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
use tokio_util::sync::WaitForCancellationFutureOwned;
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
    /// `None` once a request was made.
    quiet: Option<Quiet>,
    head: Head,
    /// The frames of HTTP/2 that were read and written.
    read: Frames,
    written: Frames,
    /// Runs while the end of a head over HTTP/1 is missing.
    head_too_late: Option<Pin<Box<Sleep>>>,
}

/// What a connection waits for until its first request.
struct Quiet {
    too_late: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(wire: Wire, admission: Admission) -> Connection {
        let too_late = Box::pin(sleep(admission.caller.bounds().limits.first_bytes()));
        let evicted = Box::pin(admission.evicted.clone().cancelled_owned());
        let quiet = Some(Quiet { too_late, evicted });
        Connection {
            wire,
            admission,
            quiet,
            head: Head::default(),
            read: Frames::default(),
            written: Frames::default(),
            head_too_late: None,
        }
    }

    /// An error if the connection does not read its answers, or holds requests that no call reads. A connection may wait for room to
    /// write, so it checks before each write, too.
    fn check_unread(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.admission.caller.unread().poll_end(cx) {
            Poll::Ready(()) => Err(io::Error::other("it does not read its answers, or no call reads its requests")),
            Poll::Pending => Ok(()),
        }
    }

    /// An error if the connection must end before its first request.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.admission.caller.has_called() {
            self.quiet = None;
        }
        let Some(quiet) = &mut self.quiet else { return Poll::Pending };
        if quiet.evicted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::Error::other("another connection takes its place"));
        }
        // From there on heads have a limit, and over HTTP/2 the transport expects an answer to its pings.
        if !self.head.has_begun() && quiet.too_late.as_mut().poll(cx).is_ready() {
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

    /// Notes which of these bytes the transport gives back to the caller's window.
    fn note_written(&mut self, slices: &[IoSlice<'_>], written: usize) {
        if !self.head.is_http2() {
            return;
        }
        let (mut rest, mut given_back) = (written, 0);
        for slice in slices {
            let part = &slice[..slice.len().min(rest)];
            rest -= part.len();
            self.written.note(part, |frame| {
                if let Frame::WindowUpdate(bytes) = frame {
                    given_back += u64::from(bytes);
                }
            });
        }
        if given_back > 0 {
            self.admission.caller.arrived().give_back(given_back);
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
        self.check_unread(cx)?;
        if self.quiet.is_some()
            && let Poll::Ready(end) = self.poll_end(cx)
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
        let (frames, mut arrived) = (this.head.note(&into.filled()[before..]), 0);
        this.read.note(frames, |frame| {
            if let Frame::Data(bytes) = frame {
                arrived += u64::from(bytes);
            }
        });
        if arrived > 0 {
            this.admission.caller.arrived().arrive(arrived);
        }
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
        self.check_unread(cx)?;
        ready!(self.poll_handshake(cx))?;
        let written = ready!(self.wire.poll_write(cx, slices))?;
        self.note_written(slices, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_unread(cx)?;
        self.wire.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_shutdown(cx)
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let limits = Limits { request_ms: LIMIT.as_millis() as u64, ..Limits::default() };
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
}
