//! HTTP/2 without TLS, as a load generator needs it: one thread, a blocking socket, many requests of one path in each write. It
//! sends the bytes that a client with an HPACK table sends, and does not decode the heads of answers: an accepted view has
//! no body, an accepted batch one of a known size, and a refusal has another one.

use super::closed::Wire;
use super::crowd::Crowd;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The largest frame that any server takes.
const FRAME_BYTES_MAX: usize = 16_384;
/// The window of a connection before its first update.
const FIRST_WINDOW: u32 = 65_535;
/// Answers of a sample have fewer bytes, so the window needs no further update.
const OUR_WINDOW: u32 = (1 << 31) - 1;
const READ_BYTES: usize = 64 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// Flags: of data and headers that end a stream, of headers that are whole, and of settings and pings.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// How views are posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Views of one request; 1: not as a batch.
    pub(super) batch: usize,
    /// Requests of one connection that are under way together.
    pub(super) streams: usize,
}

impl Shape {
    fn path(self) -> &'static str {
        if self.batch == 1 { "/v1/views" } else { "/v1/views:batch" }
    }

    /// Bytes of the body with which a request is accepted in full.
    fn answer_bytes(self) -> usize {
        if self.batch == 1 { 0 } else { br#"{"results":[]}"#.len() + self.batch * "{},".len() - 1 }
    }

    fn append(self, crowd: &mut Crowd, to: &mut Vec<u8>) {
        if self.batch == 1 { crowd.append(to) } else { crowd.append_batch(self.batch, to) }
    }
}

/// One connection.
pub(super) struct Connection {
    socket: TcpStream,
    shape: Shape,
    crowd: Crowd,
    authority: String,
    next_stream: u32,
    /// Bytes of bodies that the server takes now.
    window: i64,
    /// Answers that have not ended, and the bytes of their bodies that have not come.
    left: usize,
    left_bytes: i64,
    body: Vec<u8>,
    out: Vec<u8>,
    read: Vec<u8>,
}

impl Connection {
    /// Connects to `host:port`, and waits until the server has said what it takes.
    pub(super) fn open(authority: &str, shape: Shape, crowd: Crowd) -> Result<Connection> {
        let socket = TcpStream::connect(authority).context("the view counter refuses a connection")?;
        socket.set_nodelay(true)?;
        let mut connection = Connection {
            socket,
            shape,
            crowd,
            authority: authority.to_owned(),
            next_stream: 1,
            window: FIRST_WINDOW.into(),
            left: 0,
            left_bytes: 0,
            body: Vec::new(),
            out: PREFACE.to_vec(),
            read: Vec::new(),
        };
        frame(&mut connection.out, SETTINGS, 0, 0, &[]);
        frame(&mut connection.out, WINDOW_UPDATE, 0, 0, &(OUR_WINDOW - FIRST_WINDOW).to_be_bytes());
        connection.flush()?;
        // Settings come first. A request would fit before the update of the window, but a round might not.
        while connection.window <= FIRST_WINDOW.into() {
            connection.receive_some()?;
        }
        Ok(connection)
    }

    fn flush(&mut self) -> Result<()> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Appends a request, and its view or views.
    fn request(&mut self) {
        let (out, stream) = (&mut self.out, self.next_stream);
        if stream == 1 {
            // Each literal gets a place in the table of the connection, from which later requests take it.
            let mut block = vec![0x83, 0x86];
            for (name, value) in
                [(0x44, self.shape.path()), (0x41, self.authority.as_str()), (0x5f, "application/json")]
            {
                block.extend([name, value.len() as u8]);
                block.extend(value.as_bytes());
            }
            frame(out, HEADERS, END_HEADERS, stream, &block);
        } else {
            frame(out, HEADERS, END_HEADERS, stream, &[0x83, 0x86, 0xc0, 0xbf, 0xbe]);
        }
        self.body.clear();
        self.shape.append(&mut self.crowd, &mut self.body);
        self.window -= self.body.len() as i64;
        let mut parts = self.body.chunks(FRAME_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            frame(out, DATA, if parts.peek().is_none() { END_STREAM } else { 0 }, stream, part);
        }
        self.next_stream += 2;
    }

    /// Reads once, and takes the frames that are there in full.
    fn receive_some(&mut self) -> Result<()> {
        let kept = self.read.len();
        self.read.resize(kept + READ_BYTES, 0);
        let count = self.socket.read(&mut self.read[kept..])?;
        ensure!(count > 0, "the view counter closed a connection");
        self.read.truncate(kept + count);
        let (read, mut at) = (std::mem::take(&mut self.read), 0);
        while let Some(head) = read[at..].first_chunk::<HEAD_BYTES>() {
            let [a, b, c, kind, flags, stream @ ..] = *head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(payload) = read.get(at + HEAD_BYTES..at + HEAD_BYTES + length) else { break };
            self.take(kind, flags, u32::from_be_bytes(stream), payload)?;
            at += HEAD_BYTES + length;
        }
        self.read.extend_from_slice(&read[at..]);
        if self.out.is_empty() { Ok(()) } else { self.flush() }
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        match kind {
            DATA | HEADERS => {
                if kind == DATA {
                    self.left_bytes -= payload.len() as i64;
                    ensure!(self.left_bytes >= 0, "an answer is {}", String::from_utf8_lossy(payload));
                }
                self.left -= usize::from(flags & END_STREAM != 0);
            }
            SETTINGS | PING if flags & ACK == 0 => {
                let payload = if kind == PING { payload } else { &[] };
                frame(&mut self.out, kind, ACK, 0, payload);
            }
            WINDOW_UPDATE if stream == 0 => {
                self.window += i64::from(u32::from_be_bytes(payload.try_into().context("an update of four bytes")?));
            }
            RESET | GO_AWAY => bail!("the view counter ended a call: {payload:?}"),
            _ => {}
        }
        Ok(())
    }
}

impl Wire for Connection {
    fn send(&mut self) -> Result<usize> {
        for _ in 0..self.shape.streams {
            self.request();
        }
        (self.left, self.left_bytes) = (self.shape.streams, (self.shape.streams * self.shape.answer_bytes()) as i64);
        self.flush()?;
        Ok(self.shape.streams * self.shape.batch)
    }

    fn receive(&mut self) -> Result<()> {
        // The next round needs as large a window.
        while self.left > 0 || self.window < (self.shape.streams * self.body.len()) as i64 {
            self.receive_some()?;
        }
        ensure!(self.left_bytes == 0, "answers lack {} bytes", self.left_bytes);
        Ok(())
    }
}

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    to.extend([a, b, c, kind, flags]);
    to.extend(stream.to_be_bytes());
    to.extend(payload);
}
