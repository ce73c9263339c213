//! A proxy before a Redis that loses the reply of one chosen call: the call has taken effect, and its caller does not
//! learn of it. Or it holds one chosen call back, while other servers continue, or delays some calls. Or it keeps silent on connections, as a
//! network does that has lost them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What the proxy does with the connections of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Forwards everything.
    #[default]
    Open,
    /// Forwards, until a request contains these bytes: then it takes the reply for itself, and is shut.
    Lose(Vec<u8>),
    /// Forwards, but a request that contains these bytes waits for this time before that, and delays those behind it.
    Delay(Vec<u8>, Duration),
    /// Ends every new connection at once, as a closed port does.
    Shut,
    /// Forwards, until a request contains these bytes, and so many have passed: that one is held.
    Hold { wanted: Vec<u8>, passes: usize },
    /// A request is held.
    Held,
    /// Forwards nothing on the connections that exist, but leaves them open: on those with subscriptions, or on all.
    Silent { all: bool },
}

/// A proxy on its own port. It ends when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    /// Where new connections lead to.
    redis_port: Arc<AtomicU16>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// One before the Redis at this port.
    pub(crate) async fn start(redis_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let (mode, redis_port) = (Arc::new(watch::Sender::default()), Arc::new(AtomicU16::new(redis_port)));
        let task = tokio::spawn(accept(listener, redis_port.clone(), mode.clone()));
        Proxy { address, mode, redis_port, task }
    }

    /// New connections lead to another Redis, as those to a name do that has another address now.
    pub(crate) fn lead_to(&self, redis_port: u16) {
        self.redis_port.store(redis_port, Ordering::Relaxed);
    }

    /// Where a server connects to.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Loses the reply of the next request that contains these bytes, such as the hash of a script. From then on it is
    /// shut.
    pub(crate) fn lose(&self, request: &str) {
        self.mode.send_replace(Mode::Lose(request.as_bytes().to_vec()));
    }

    /// Delays each request that contains these bytes.
    pub(crate) fn delay(&self, request: &str, delay: Duration) {
        self.mode.send_replace(Mode::Delay(request.as_bytes().to_vec(), delay));
    }

    /// Waits until the reply is lost.
    pub(crate) async fn lost(&self) {
        self.mode.subscribe().wait_for(|mode| *mode == Mode::Shut).await.expect("the sender is here");
    }

    /// Forwards what it holds, and so many requests that contain these bytes. The next one it holds.
    pub(crate) fn hold(&self, request: &str, passes: usize) {
        self.mode.send_replace(Mode::Hold { wanted: request.as_bytes().to_vec(), passes });
    }

    /// Waits until a request is held.
    pub(crate) async fn held(&self) {
        self.mode.subscribe().wait_for(|mode| *mode == Mode::Held).await.expect("the sender is here");
    }

    /// From now on nothing arrives on the existing subscriptions; new ones are forwarded.
    pub(crate) fn silence_subscriptions(&self) {
        self.mode.send_replace(Mode::Silent { all: false });
    }

    /// From now on nothing arrives on the existing connections; new ones are forwarded.
    pub(crate) fn silence(&self) {
        self.mode.send_replace(Mode::Silent { all: true });
    }

    /// Forwards again.
    pub(crate) fn open(&self) {
        self.mode.send_replace(Mode::Open);
    }
}

async fn accept(listener: TcpListener, redis_port: Arc<AtomicU16>, mode: Arc<watch::Sender<Mode>>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        if *mode.borrow() == Mode::Shut {
            continue;
        }
        let is_new = matches!(*mode.borrow(), Mode::Silent { .. });
        let (mode, redis_port) = (mode.clone(), redis_port.load(Ordering::Relaxed));
        tokio::spawn(async move {
            let Ok(redis) = TcpStream::connect((Ipv4Addr::LOCALHOST, redis_port)).await else { return };
            // An error is the end of the connection, like the loss.
            drop(forward(client, redis, &mode, is_new).await);
        });
    }
}

/// Whether this request is the one to hold. It comes in one part: a server sends it while it waits for nothing else.
fn is_to_be_held(request: &[u8], mode: &watch::Sender<Mode>) -> bool {
    mode.send_if_modified(|mode| {
        let Mode::Hold { wanted, passes } = mode else { return false };
        if !request.windows(wanted.len()).any(|part| part == wanted) {
            return false;
        }
        match passes.checked_sub(1) {
            Some(left) => *passes = left,
            None => *mode = Mode::Held,
        }
        *mode == Mode::Held
    })
}

/// Forwards between the two until one of them ends, or a reply is lost. `is_new`: it is not silenced.
async fn forward(client: TcpStream, redis: TcpStream, mode: &watch::Sender<Mode>, is_new: bool) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_redis, mut to_redis) = redis.into_split();
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // The end of the last request: what is looked for may come in two parts.
    let mut seen = Vec::new();
    let mut subscribes = false;
    let is_silent = |subscribes| !is_new && matches!(*mode.borrow(), Mode::Silent { all } if all || subscribes);
    loop {
        tokio::select! {
            read = from_client.read(&mut request) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                subscribes |= request[..read].windows(9).any(|part| part == b"SUBSCRIBE");
                if is_silent(subscribes) {
                    continue;
                }
                if is_to_be_held(&request[..read], mode) {
                    mode.subscribe().wait_for(|mode| *mode != Mode::Held).await.expect("the sender is here");
                }
                let delay = match &*mode.borrow() {
                    Mode::Delay(delayed, delay) if request[..read].windows(delayed.len()).any(|part| part == delayed) => {
                        Some(*delay)
                    }
                    _ => None,
                };
                if let Some(delay) = delay {
                    sleep(delay).await;
                }
                to_redis.write_all(&request[..read]).await?;
                seen.extend_from_slice(&request[..read]);
                let wanted = match &*mode.borrow() {
                    Mode::Lose(wanted) => Some(wanted.clone()),
                    _ => None,
                };
                if wanted.is_some_and(|wanted| seen.windows(wanted.len()).any(|part| part == wanted)) {
                    // The reply proves that the call has been executed.
                    if from_redis.read(&mut reply).await? > 0 {
                        mode.send_replace(Mode::Shut);
                    }
                    return Ok(());
                }
                seen.drain(..seen.len().saturating_sub(64));
            }
            read = from_redis.read(&mut reply) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                if is_silent(subscribes) {
                    continue;
                }
                to_client.write_all(&reply[..read]).await?;
            }
        }
    }
}
