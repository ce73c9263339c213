//! beanstalkd, with an fsync of its log on every write, and a client of its text protocol.

use super::version_of;
use crate::child;
use crate::load::{Draft, LoadClient};
use anyhow::{Context, Result, bail, ensure};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

/// A running beanstalkd; it ends when this is dropped.
pub(crate) struct Beanstalkd {
    _process: Child,
    _dir: TempDir,
    port: u16,
    version: String,
}

impl Beanstalkd {
    /// Starts one; `None`: it is not installed.
    pub(crate) async fn start() -> Result<Option<Beanstalkd>> {
        let Some(version) = version_of("beanstalkd", "-v").await else { return Ok(None) };
        let dir = tempfile::tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = child::command("beanstalkd", dir.path());
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-f", "0", "-b"]).arg(dir.path());
        let process = command.stdin(Stdio::null()).spawn().context("cannot start beanstalkd")?;
        let started = Beanstalkd { _process: process, _dir: dir, port, version };
        for _ in 0..500 {
            if started.connect().await.is_ok() {
                return Ok(Some(started));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("beanstalkd does not answer on port {port}");
    }

    pub(crate) fn name(&self) -> String {
        self.version.clone()
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), line: String::new() })
    }

    /// This many clients, each with its own connection.
    pub(crate) async fn clients(&self, count: usize) -> Result<Vec<Connection>> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }
}

/// One connection. The protocol has no batches: a call carries one message, whatever the limit.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Connection {
    /// Sends a command and reads the line of its response.
    async fn send(&mut self, command: &[u8]) -> Result<&str> {
        self.stream.write_all(command).await?;
        self.line.clear();
        self.stream.read_line(&mut self.line).await?;
        Ok(self.line.trim_end())
    }
}

impl LoadClient for Connection {
    type Held = u64;

    async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
        for draft in drafts {
            // Its priorities are 32 bits wide: the low ones are as random as the whole.
            let (priority, bytes) = (draft.priority as u32, draft.payload.len());
            let mut command = format!("put {priority} 0 30 {bytes}\r\n").into_bytes();
            command.extend_from_slice(&draft.payload);
            command.extend_from_slice(b"\r\n");
            let answer = self.send(&command).await?;
            ensure!(answer.starts_with("INSERTED "), "beanstalkd answered put with {answer:?}");
        }
        Ok(())
    }

    async fn dequeue(&mut self, _limit: usize) -> Result<Vec<u64>> {
        let answer = self.send(b"reserve-with-timeout 0\r\n").await?;
        if answer == "TIMED_OUT" {
            return Ok(Vec::new());
        }
        let fields: Vec<&str> = answer.split(' ').collect();
        let ["RESERVED", id, bytes] = fields[..] else { bail!("beanstalkd answered reserve with {answer:?}") };
        let (id, bytes): (u64, usize) = (id.parse()?, bytes.parse()?);
        let mut payload = vec![0; bytes + 2];
        self.stream.read_exact(&mut payload).await?;
        Ok(vec![id])
    }

    async fn complete(&mut self, held: Vec<u64>) -> Result<()> {
        for id in held {
            let answer = self.send(format!("delete {id}\r\n").as_bytes()).await?;
            ensure!(answer == "DELETED", "beanstalkd answered delete with {answer:?}");
        }
        Ok(())
    }
}
