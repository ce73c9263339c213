//! A connection whose small writes leave together.
//!
//! Sixty-four calls on one connection are sixty-four tasks. Each hands its frames to the connection's task and wakes
//! it, and the scheduler runs a task just woken next: one frame, one write to the kernel, one wake-up of the peer, for
//! every call. The kernel's share of such a write is several times what it costs to make the frame.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Bytes that may wait for the turn to end; what is more is written at once.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Holds what is written until the tasks that are ready to run have had their turn, then writes all of it in one go.
///
/// A flush asks the scheduler for one turn more, and is done when what was held is with the kernel: on an idle
/// machine that is at once, so nothing ever waits for a timer.
#[derive(Debug)]
pub struct Corked<T> {
    inner: T,
    held: BytesMut,
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The next flush lets others go first.
    Fresh,
    /// It has.
    Over,
}

impl<T> Corked<T> {
    /// Wraps a connection.
    pub fn new(inner: T) -> Self {
        Corked { inner, held: BytesMut::new(), turn: Turn::Fresh }
    }
}

impl<T: AsyncWrite + Unpin> Corked<T> {
    /// Hands what is held to the kernel.
    fn poll_write_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.held.advance(written),
            }
        }
        self.turn = Turn::Fresh;
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
            if self.turn == Turn::Fresh {
                self.turn = Turn::Over;
                // A task that wakes itself goes to the end of the line.
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

    /// Notes the size of every write.
    struct Noted {
        inner: DuplexStream,
        writes: Arc<Mutex<Vec<usize>>>,
    }

    impl AsyncWrite for Noted {
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

    fn pair(pipe_bytes: usize) -> (Corked<Noted>, DuplexStream, Arc<Mutex<Vec<usize>>>) {
        let (near, far) = duplex(pipe_bytes);
        let writes = Arc::new(Mutex::new(Vec::new()));
        (Corked::new(Noted { inner: near, writes: writes.clone() }), far, writes)
    }

    #[tokio::test]
    async fn what_tasks_write_in_one_turn_leaves_in_one_write() {
        let (mut corked, mut far, writes) = pair(1024);
        let (frames, mut to_write) = tokio::sync::mpsc::unbounded_channel::<&[u8]>();
        // As a connection does: whatever is there is written, then flushed, and more may come before that is done.
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
    async fn nothing_is_lost_or_turned_round_whatever_the_sizes_and_however_slow_the_reader() {
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
    async fn a_flush_is_done_when_the_peer_can_read_it() {
        let (mut corked, mut far, _) = pair(64);
        corked.write_all(b"ping").await.unwrap();
        corked.flush().await.unwrap();
        let mut read = [0; 4];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
    }

    #[tokio::test]
    async fn a_peer_that_has_gone_is_an_error() {
        let (mut corked, far, _) = pair(64);
        drop(far);
        corked.write_all(b"ping").await.unwrap();
        assert_eq!(corked.flush().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
