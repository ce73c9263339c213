//! The accept loop, and the connections that it makes.

use super::admission::{Admission, Bounds, Caller};
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
                bounds.make_room();
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

/// An admitted connection. It ends when no bytes come in time, when it has made no request and another connection
/// needs its place, and when it does not read its answers.
pub(crate) struct Connection {
    wire: Wire,
    admission: Admission,
    /// `None` once a request was made.
    quiet: Option<Quiet>,
    head: Head,
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
        Connection { wire, admission, quiet, head: Head::default() }
    }

    /// An error if the connection does not read its answers. A connection may wait for room to write, so it checks before each write, too.
    fn check_unread(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.admission.caller.unread().poll_end(cx) {
            Poll::Ready(()) => Err(io::Error::other("it does not read its answers")),
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
        // From there on the transport has time limits.
        if !self.head.has_begun() && quiet.too_late.as_mut().poll(cx).is_ready() {
            note_closed(Closed::Silent);
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
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
        let before = into.filled().len();
        let read = self.wire.poll_read(cx, into);
        self.head.note(&into.filled()[before..]);
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
        self.wire.poll_write(cx, slices)
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
