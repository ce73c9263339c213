//! One connection, and how its loss is noticed when no error says so: a network that lost it keeps it open and silent
//! (decision 0057).

use crate::error::is_of_a_replica;
use crate::offset::{Offset, Sight};
use crate::own_clock::steady_ms;
use crate::primary::{Lead, Primary};
use crate::source::{Node, Source};
use crate::timeline::Lineage;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, InfoDict, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For the connection and the node's answer whether it is a primary.
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
/// After this time without a reply the connection counts as lost. Generous, because an fsync can stall for seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);
/// After this time without a reply a new connection finds out whether Redis answers at all.
const SILENCE: Duration = Duration::from_secs(2);
/// The time for a reply that Redis had sent before it answered the new connection.
const IN_TRANSIT: Duration = Duration::from_secs(1);
/// The time for the replies of a node after another one was named the primary.
const LEFT: Duration = Duration::from_millis(200);
/// Between two attempts of the new connection.
const RETRY: Duration = Duration::from_millis(200);
/// For this time after a write the node has not been a replica and become the primary again. A failover takes longer.
const PROVEN_FOR: Duration = Duration::from_secs(1);

/// A connection that many callers share. Its clones are the same connection. The futures of its replies are large, so they
/// are boxed: every caller up to the RPC would contain them.
#[derive(Clone)]
pub(crate) enum Connection {
    Network { multiplexed: MultiplexedConnection, lost: Arc<Lost>, sight: Sight },
    Node { node: Arc<dyn Node>, sight: Sight },
}

impl Connection {
    /// Connects to a primary. `blocked`: how long a command may keep Redis from replies to the commands behind it.
    ///
    /// # Errors
    /// No node answers, or it is a replica: its reads may be old, and it takes no writes.
    pub(crate) async fn open(source: &Source, blocked: Duration) -> RedisResult<Connection> {
        let primary = match source {
            Source::Network(primary) => primary.clone(),
            Source::Node(node) => {
                let node = node.clone().open();
                let lineage = lineage(node.call(redis::cmd("INFO").arg("replication")).await)?;
                let sent_ms = steady_ms();
                let offset = offset(sent_ms, node.call(&redis::cmd("TIME")).await);
                return Ok(Connection::Node { node, sight: Sight { lineage, offset, is_of_several: true } });
            }
        };
        let proven = Mutex::new(Instant::now());
        let (lead, multiplexed, sight) = loop {
            let opened = timeout(OPEN_TIMEOUT, Box::pin(connect_to_primary(&primary))).await;
            let opened = opened.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "Redis does not answer"));
            if let Some(opened) = opened?? {
                break opened;
            }
        };
        let silence = SILENCE + blocked;
        let lost = Lost { primary, lead, silence, replies: AtomicU64::new(0), overtaken: OnceCell::new(), proven };
        Ok(Connection::Network { multiplexed, lost: Arc::new(lost), sight })
    }

    /// The timeline of the node that it leads to, as of its opening. A node that leaves its timeline refuses writes in between, and
    /// then the connection is dropped. One without writes in between is dropped if it is not [current](Connection::is_current) any
    /// more, or not [on its timeline](Connection::is_on_its_timeline) before its next write.
    pub(crate) fn lineage(&self) -> Lineage {
        self.sight().lineage
    }

    /// The same timeline, and the node's clock at the opening.
    pub(crate) fn sight(&self) -> Sight {
        match self {
            Connection::Network { sight, .. } | Connection::Node { sight, .. } => *sight,
        }
    }

    /// Whether it works, and the node is still on the timeline of its opening. It may be closed without having said so yet. A future
    /// that other crates do not see: all calls contain it, and the compiler bounds how deep they are.
    pub(crate) fn is_on_its_timeline(&mut self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move {
            let began = Instant::now();
            match lineage(self.call(redis::cmd("INFO").arg("replication")).await) {
                Ok(now) if now.current == self.lineage().current => {
                    self.has_written(began);
                    return true;
                }
                // It has refused the command: it may be busy with a script.
                Ok(now) if now.current == Lineage::default().current => {}
                Ok(_) => self.ends_generation(),
                Err(error) if is_of_a_replica(error.code()) => self.ends_generation(),
                // It is closed, or lost: that says nothing of the node.
                Err(_) => {}
            }
            false
        })
    }

    /// Whether it leads to the primary, as far as is known, and no other node was the primary since its opening.
    pub(crate) fn is_current(&self) -> bool {
        match self {
            Connection::Network { lost, .. } => lost.primary.is_at(&lost.lead),
            Connection::Node { .. } => true,
        }
    }

    /// Whether its node may have been a replica, and be the primary of another timeline now, without anything that says so.
    pub(crate) fn may_have_left(&self) -> bool {
        match self {
            Connection::Network { lost, .. } => !lost.primary.is_watched() && lost.proven().elapsed() >= PROVEN_FOR,
            Connection::Node { .. } => false,
        }
    }

    /// A write that was sent at this time has been executed: until then the node was on its timeline.
    pub(crate) fn has_written(&self, sent_at: Instant) {
        if let Connection::Network { lost, .. } = self {
            let mut proven = lost.proven();
            *proven = sent_at.max(*proven);
        }
    }

    /// The node is a replica, or was one since this connection was opened: all that were opened before are of no more use.
    pub(crate) fn ends_generation(&self) {
        if let Connection::Network { lost, .. } = self {
            lost.primary.ends(&lost.lead);
        }
    }

    /// Sends one command and waits for its reply.
    pub(crate) async fn call(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Connection::Network { multiplexed, lost, .. } => {
                lost.unless(Box::pin(multiplexed.send_packed_command(command))).await
            }
            Connection::Node { node, .. } => node.call(command).await,
        }
    }

    /// Sends a pipeline and waits for all of its replies.
    pub(crate) async fn calls(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Connection::Network { multiplexed, lost, .. } => {
                lost.unless(Box::pin(multiplexed.send_packed_commands(commands, 0, commands.len()))).await
            }
            Connection::Node { node, .. } => {
                let mut replies = Vec::with_capacity(commands.len());
                for command in commands.cmd_iter() {
                    replies.push(node.call(command).await?);
                }
                Ok(replies)
            }
        }
    }
}

/// `None`: another node has become the primary meanwhile. A node that hangs is no reason to wait then.
async fn connect_to_primary(primary: &Primary) -> RedisResult<Option<(Lead, MultiplexedConnection, Sight)>> {
    let lead = primary.lead().await?;
    let opened = async {
        let mut connection = connect(&lead.client).await?;
        let lineage = lineage(connection.send_packed_command(redis::cmd("INFO").arg("replication")).await)?;
        let sent_ms = steady_ms();
        let offset = offset(sent_ms, connection.send_packed_command(&redis::cmd("TIME")).await);
        Ok::<_, RedisError>((connection, Sight { lineage, offset, is_of_several: primary.is_named() }))
    };
    tokio::select! {
        opened = opened => match opened {
            Ok((connection, sight)) => Ok(Some((lead.clone(), connection, sight))),
            Err(error) => {
                // What was opened while it was the primary leads to a replica, too.
                if is_of_a_replica(error.code()) {
                    primary.ends(&lead);
                }
                Err(error)
            }
        },
        () = primary.leaves(&lead.client) => Ok(None),
    }
}

/// Reads the lineage of a primary from its `INFO replication`.
///
/// # Errors
/// It is a replica.
pub(crate) fn lineage(info: RedisResult<Value>) -> RedisResult<Lineage> {
    // A Redis that refuses that says with the next command what is wrong.
    let Ok(info) = redis::from_redis_value::<InfoDict>(info?.extract_error().unwrap_or(Value::Nil)) else {
        return Ok(Lineage::default());
    };
    if info.get::<String>("role").as_deref() == Some("slave") {
        return Err(RedisError::from((ErrorKind::Server(ServerErrorKind::ReadOnly), "this Redis is a replica")));
    }
    Ok(Lineage::of(&info))
}

/// Of a node's clock, by its answer to `TIME`.
fn offset(sent_ms: u64, time: RedisResult<Value>) -> Option<Offset> {
    let store_ms = time_of(time.ok()?).ok()?;
    Some(Offset::measured(sent_ms, store_ms, steady_ms()))
}

/// The answer to `TIME`, in Unix ms.
pub(crate) fn time_of(time: Value) -> Result<u64, redis::ParsingError> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
    Ok(seconds * 1_000 + micros / 1_000)
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    // No time limit of the library's own for replies: `Lost` has it.
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Finds out that a connection is lost.
pub(crate) struct Lost {
    primary: Primary,
    /// Where the connection leads.
    lead: Lead,
    silence: Duration,
    /// How many replies have arrived.
    replies: AtomicU64,
    /// Set once a later connection was answered and this one was not.
    overtaken: OnceCell<()>,
    /// When the node was on the timeline of the opening for certain.
    proven: Mutex<Instant>,
}

impl Lost {
    fn proven(&self) -> MutexGuard<'_, Instant> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply, or an error when the connection is found to be lost. A late reply may just need its time, so silence alone
    /// decides nothing for long: Redis executes one command after the other, so when it answers a new connection, it has
    /// sent the replies to all commands that it had received before.
    async fn unless<T>(&self, reply: Pin<Box<impl Future<Output = RedisResult<T>>>>) -> RedisResult<T> {
        let mut reply = pin!(async {
            let reply = reply.await;
            self.replies.fetch_add(1, Ordering::Relaxed);
            reply
        });
        let why = tokio::select! {
            biased;
            reply = &mut reply => return reply,
            why = self.found() => why,
        };
        Err(RedisError::from(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    /// Returns, with the reason, when no further reply can be expected.
    async fn found(&self) -> &'static str {
        // Most replies come before: their calls need one timer.
        sleep(LEFT).await;
        let silent = async {
            sleep(self.silence.saturating_sub(LEFT)).await;
            tokio::select! {
                _ = self.overtaken.get_or_init(|| Box::pin(self.overtake())) => "Redis answers a new connection, but not this one",
                () = sleep(REPLY_TIMEOUT.saturating_sub(self.silence)) => "Redis does not answer",
            }
        };
        // The silence of a node that another one has replaced is not waited for: it may be frozen.
        let left = async {
            self.primary.leaves(&self.lead.client).await;
            sleep(LEFT).await;
            "another Redis is the primary"
        };
        tokio::select! {
            why = silent => why,
            why = left => why,
        }
    }

    /// Returns when Redis has answered a new connection, and no reply has arrived here meanwhile.
    async fn overtake(&self) {
        loop {
            let before = self.replies.load(Ordering::Relaxed);
            if self.ping().await.is_ok() {
                sleep(IN_TRANSIT).await;
                if self.replies.load(Ordering::Relaxed) == before {
                    return;
                }
            }
            sleep(RETRY).await;
        }
    }

    async fn ping(&self) -> RedisResult<Value> {
        connect(&self.lead.client).await?.send_packed_command(&redis::cmd("PING")).await
    }
}
