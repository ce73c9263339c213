//! The bytes of one connection, with or without TLS.

use super::names::ClientCertificate;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// A connection. The TLS handshake is a part of the first read or write, so that it holds up no other connection.
pub(crate) enum Wire {
    Plain(TcpStream),
    Handshake(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Failed,
}

/// What the handshake has shown.
pub(crate) enum Handshake {
    /// It is over, or there was none.
    Done,
    /// It has just ended: the client's certificate.
    Certificate(ClientCertificate),
}

impl Wire {
    pub(crate) fn new(tcp: TcpStream, tls: Option<TlsAcceptor>) -> Wire {
        match tls {
            Some(tls) => Wire::Handshake(Box::new(tls.accept(tcp))),
            None => Wire::Plain(tcp),
        }
    }

    /// Completes the handshake. Call it before each read and write.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Handshake>> {
        let Wire::Handshake(accept) = self else {
            return Poll::Ready(match self {
                Wire::Failed => Err(io::ErrorKind::NotConnected.into()),
                _ => Ok(Handshake::Done),
            });
        };
        match ready!(Pin::new(accept.as_mut()).poll(cx)) {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let certificate = certificates.and_then(<[_]>::first).and_then(|first| ClientCertificate::read(first));
                *self = Wire::Tls(Box::new(stream));
                Poll::Ready(Ok(certificate.map_or(Handshake::Done, Handshake::Certificate)))
            }
            Err(error) => {
                *self = Wire::Failed;
                Poll::Ready(Err(error))
            }
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Plain(tcp) => Pin::new(tcp).poll_read(cx, into),
            Wire::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, into),
            Wire::Handshake(_) | Wire::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Wire::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(cx, slices),
            Wire::Handshake(_) | Wire::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Wire::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
            Wire::Handshake(_) | Wire::Failed => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
            Wire::Handshake(_) | Wire::Failed => Poll::Ready(Ok(())),
        }
    }
}
