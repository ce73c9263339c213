//! Raw Redis as reference: the same bytes, appended to streams in pipelines. It has no server, no HTTP and no JSON, compares
//! no view with earlier ones, and counts nothing.

use super::closed::Wire;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

const READ_BYTES: usize = 64 << 10;

/// One connection, which appends to its stream.
pub(super) struct RawAppends {
    socket: TcpStream,
    round: Vec<u8>,
    entries: usize,
    views: usize,
    /// Ends of lines that have not come: each reply has two lines, the length of an id and the id.
    left: usize,
    buffer: Vec<u8>,
}

impl RawAppends {
    /// Each round is a pipeline of entries, each with a number of views of `view_bytes`.
    pub(super) fn open(
        port: u16,
        stream: usize,
        entries: usize,
        batch: usize,
        view_bytes: usize,
    ) -> Result<RawAppends> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("Redis refuses a connection")?;
        socket.set_nodelay(true)?;
        let mut round = Vec::new();
        let entry = vec![b'v'; batch * view_bytes];
        for _ in 0..entries {
            let key = format!("floor-{stream}");
            write!(round, "*5\r\n$4\r\nXADD\r\n${}\r\n{key}\r\n$1\r\n*\r\n$1\r\nv\r\n${}\r\n", key.len(), entry.len())?;
            round.extend(&entry);
            round.extend(b"\r\n");
        }
        Ok(RawAppends { socket, round, entries, views: entries * batch, left: 0, buffer: vec![0; READ_BYTES] })
    }
}

impl Wire for RawAppends {
    fn send(&mut self) -> Result<usize> {
        self.left = 2 * self.entries;
        self.socket.write_all(&self.round)?;
        Ok(self.views)
    }

    fn receive(&mut self) -> Result<()> {
        while self.left > 0 {
            let count = self.socket.read(&mut self.buffer)?;
            let read = &self.buffer[..count];
            // Neither a length nor an id has letters; an error begins with some.
            let is_refused = read.iter().any(u8::is_ascii_uppercase);
            ensure!(count > 0 && !is_refused, "Redis refuses: {}", String::from_utf8_lossy(read));
            self.left -= read.iter().filter(|byte| **byte == b'\n').count();
        }
        Ok(())
    }
}
