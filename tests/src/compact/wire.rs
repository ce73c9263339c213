//! A connection that speaks the engine's protocol, RESP2 or RESP3, and shows replies as they are.

use super::Reply;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// An engine that does not answer for this time is broken.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Nesting of a reply at most: what is deeper is not one.
const DEPTH_MAX: u32 = 16;

/// The words of a line as arguments of a command.
pub fn words(line: &str) -> Vec<&[u8]> {
    line.split_ascii_whitespace().map(str::as_bytes).collect()
}

/// A connection.
pub struct Wire {
    stream: BufReader<TcpStream>,
    unsent: Vec<u8>,
}

impl Wire {
    /// Connects to a port of this machine.
    pub fn connect(port: u16) -> io::Result<Wire> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Wire { stream: BufReader::with_capacity(1 << 16, stream), unsent: Vec::new() })
    }

    /// Speaks RESP3 from now on.
    pub fn hello_3(&mut self) {
        let reply = self.run("HELLO 3");
        assert!(matches!(reply, Reply::Map(_)), "{reply}");
    }

    /// Adds a command to what is sent next.
    pub fn add<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.unsent.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            let arg = arg.as_ref();
            self.unsent.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            self.unsent.extend_from_slice(arg);
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was added.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.unsent);
        self.unsent.clear();
        sent
    }

    /// The reply to a command.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.add(args);
        self.flush()?;
        self.read()
    }

    /// The reply to a command.
    ///
    /// # Panics
    /// The connection fails.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_call(args).unwrap_or_else(|error| panic!("{}: {error}", shown(args)))
    }

    /// The reply to a command whose arguments are the words of a line.
    ///
    /// # Panics
    /// The connection fails.
    pub fn run(&mut self, line: &str) -> Reply {
        self.call(&words(line))
    }

    /// The same for a command that is not refused.
    ///
    /// # Panics
    /// It is, or the connection fails.
    pub fn done(&mut self, line: &str) -> Reply {
        let reply = self.run(line);
        assert!(reply.code().is_none(), "{line}: {reply}");
        reply
    }

    /// The replies to many commands that are sent at once.
    ///
    /// # Panics
    /// The connection fails.
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Reply> {
        commands.iter().for_each(|args| self.add(args));
        self.flush().expect("a connection");
        commands.iter().map(|args| self.read().unwrap_or_else(|error| panic!("{}: {error}", shown(args)))).collect()
    }

    /// The next reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        self.read_within(DEPTH_MAX)
    }

    fn read_within(&mut self, depth: u32) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| broken("an empty line"))?;
        let depth = depth.checked_sub(1).ok_or_else(|| broken("a reply within replies"))?;
        let count = || rest.parse::<i64>().map_err(|_| broken(&line));
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(count()?),
            "_" => Reply::Nil,
            "#" => Reply::Int(i64::from(rest == "t")),
            "," | "(" => Reply::Bulk(rest.as_bytes().to_vec()),
            "$" | "=" => match usize::try_from(count()?) {
                Ok(length) => Reply::Bulk(self.bytes(length)?),
                Err(_) => Reply::Nil,
            },
            "*" | "~" | ">" => match usize::try_from(count()?) {
                Ok(length) => Reply::Array((0..length).map(|_| self.read_within(depth)).collect::<Result<_, _>>()?),
                Err(_) => Reply::Nil,
            },
            "%" => {
                let pair = |_| Ok((self.read_within(depth)?, self.read_within(depth)?));
                Reply::Map((0..count()?).map(pair).collect::<io::Result<_>>()?)
            }
            _ => return Err(broken(&line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let text = line.strip_suffix("\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        Ok(text.to_owned())
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        let end = bytes.split_off(length);
        if end == b"\r\n" { Ok(bytes) } else { Err(broken("bytes without an end")) }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().take(8).map(|arg| arg.as_ref().escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
}
