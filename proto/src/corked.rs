//! A connection that sends small writes together.
//!
//! Sixty-four calls on one connection are sixty-four tasks. Each passes its frames to the connection's task and wakes it,
//! and the scheduler runs a task just woken next. Without this wrapper, every call costs one write to the kernel and one
//! wake-up of the peer, and such a write costs several times as much as making the frame.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// How many bytes may wait for a flush; more are written at once.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Holds written bytes until every task that is ready has run, then writes all of them at once.
///
/// A flush yields to the scheduler once, and is complete when the kernel has the held bytes. On an idle machine that is
/// immediately; nothing ever waits for a timer.
#[derive(Debug)]
pub struct Corked<T> {
    inner: T,
    held: BytesMut,
    flush: Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// The next flush yields first.
    Yields,
    /// The flush has yielded, and writes when it is polled again.
    Writes,
}

impl<T> Corked<T> {
    /// Wraps a connection.
    pub fn new(inner: T) -> Self {
        Corked { inner, held: BytesMut::new(), flush: Flush::Yields }
    }
}

impl<T: AsyncWrite + Unpin> Corked<T> {
    /// Writes the held bytes to the kernel.
    fn poll_write_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.held.advance(written),
            }
        }
        self.flush = Flush::Yields;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.held.len() + bytes > HELD_BYTES_MAX {
            ready!(self.poll_write_held(cx))?;
            if bytes > HELD_BYTES_MAX {
                return Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
            }
        }
        slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            if self.flush == Flush::Yields {
                self.flush = Flush::Writes;
                // A task that wakes itself goes to the end of the queue.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_write_held(cx))?;
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Corked<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<T: Connected> Connected for Corked<T> {
    type ConnectInfo = T::ConnectInfo;

    fn connect_info(&self) -> T::ConnectInfo {
        self.inner.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Records the size of every write.
    struct Recorded {
        inner: DuplexStream,
        writes: Arc<Mutex<Vec<usize>>>,
    }

    impl AsyncWrite for Recorded {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
            self.writes.lock().unwrap().push(written);
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    fn pair(pipe_bytes: usize) -> (Corked<Recorded>, DuplexStream, Arc<Mutex<Vec<usize>>>) {
        let (near, far) = duplex(pipe_bytes);
        let writes = Arc::new(Mutex::new(Vec::new()));
        (Corked::new(Recorded { inner: near, writes: writes.clone() }), far, writes)
    }

    #[tokio::test]
    async fn frames_of_ready_tasks_share_one_write() {
        let (mut corked, mut far, writes) = pair(1024);
        let (frames, mut to_write) = tokio::sync::mpsc::unbounded_channel::<&[u8]>();
        // As an HTTP/2 connection does: it writes what is ready, then flushes; more may arrive before the flush is complete.
        let connection = tokio::spawn(async move {
            std::future::poll_fn(|cx| {
                loop {
                    match to_write.poll_recv(cx) {
                        Poll::Ready(Some(frame)) => assert!(Pin::new(&mut corked).poll_write(cx, frame)?.is_ready()),
                        Poll::Ready(None) => return Pin::new(&mut corked).poll_flush(cx),
                        Poll::Pending => {
                            ready!(Pin::new(&mut corked).poll_flush(cx))?;
                            return Poll::Pending;
                        }
                    }
                }
            })
            .await?;
            io::Result::Ok(())
        });
        let callers: Vec<_> = (0..10)
            .map(|_| {
                let frames = frames.clone();
                tokio::spawn(async move { frames.send(b"frame") })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
        drop(frames);
        connection.await.unwrap().unwrap();
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"frame".repeat(10));
        assert_eq!(*writes.lock().unwrap(), [50]);
    }

    #[tokio::test]
    async fn bytes_keep_their_order_for_any_sizes_and_a_slow_reader() {
        let sizes = [1, 0, 70_000, 5, 60_000, 6_000, 65_536, 65_537, 3];
        let (mut corked, mut far, writes) = pair(777);
        let bytes: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        let reader = tokio::spawn(async move {
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.map(|_| read)
        });
        let mut rest = bytes.as_slice();
        for (n, size) in sizes.into_iter().enumerate() {
            let (now, later) = rest.split_at(size);
            corked.write_all(now).await.unwrap();
            if n % 2 == 0 {
                corked.flush().await.unwrap();
            }
            rest = later;
        }
        corked.shutdown().await.unwrap();
        drop(corked);
        assert_eq!(reader.await.unwrap().unwrap(), expected);
        assert!(writes.lock().unwrap().iter().all(|written| *written <= 777));
    }

    #[tokio::test]
    async fn after_a_flush_the_peer_can_read() {
        let (mut corked, mut far, _) = pair(64);
        corked.write_all(b"ping").await.unwrap();
        corked.flush().await.unwrap();
        let mut read = [0; 4];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
    }

    #[tokio::test]
    async fn a_closed_peer_is_an_error() {
        let (mut corked, far, _) = pair(64);
        drop(far);
        corked.write_all(b"ping").await.unwrap();
        assert_eq!(corked.flush().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
