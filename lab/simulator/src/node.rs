//! One simulated Redis: it executes commands and scripts, one after the other.

use crate::commands::{Arguments, execute};
use crate::keyspace::{Fault, Keyspace};
use crate::scripting::{Alteration, Engine, Metered, locked};
use redis::{Cmd, RedisResult, Value};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tallystone_link::{Node, NodeReply};

/// Is called with each message that is published.
pub type Subscriber = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A Redis in the process.
pub struct SimulatedRedis {
    engine: Engine,
    /// The scripts that this Redis has. A restart or a failover loses them.
    loaded: Mutex<HashSet<String>>,
    /// The number of its replication id.
    timeline: AtomicU32,
    subscribers: Mutex<Vec<Subscriber>>,
}

impl SimulatedRedis {
    /// An empty one that can undo this number of writes.
    ///
    /// # Panics
    /// If Lua cannot start.
    pub fn new(writes_kept: usize) -> SimulatedRedis {
        SimulatedRedis::with(writes_kept, None)
    }

    /// The same with a defect: it runs other texts than those of the scripts that it loads. `alter` makes them.
    ///
    /// # Panics
    /// If Lua cannot start.
    pub fn altered(writes_kept: usize, alter: impl Fn(&str) -> String + Send + Sync + 'static) -> SimulatedRedis {
        SimulatedRedis::with(writes_kept, Some(Box::new(alter)))
    }

    fn with(writes_kept: usize, alteration: Option<Alteration>) -> SimulatedRedis {
        let keyspace = Arc::new(Mutex::new(Keyspace::new(writes_kept)));
        let engine = Engine::new(keyspace, alteration).expect("Lua starts unless there is no memory");
        let (loaded, timeline, subscribers) = (Mutex::default(), AtomicU32::new(1), Mutex::default());
        SimulatedRedis { engine, loaded, timeline, subscribers }
    }

    /// Empties it. What Lua has compiled stays.
    pub fn reset(&self, writes_kept: usize) {
        *self.engine.keyspace() = Keyspace::new(writes_kept);
        self.timeline.store(0, Ordering::Relaxed);
        self.begin_timeline();
        locked(&self.subscribers).clear();
    }

    /// What a restart and a failover do in addition to what they lose: it forgets its scripts, and has another replication id.
    /// Returns the timeline of before.
    pub fn begin_timeline(&self) -> u32 {
        self.forget_scripts();
        self.timeline.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on it shows this timeline. Returns the one of before.
    pub(crate) fn show_timeline(&self, timeline: u32) -> u32 {
        self.timeline.swap(timeline, Ordering::Relaxed)
    }

    fn forget_scripts(&self) {
        locked(&self.loaded).clear();
    }

    /// Its data.
    pub fn keyspace(&self) -> MutexGuard<'_, Keyspace> {
        self.engine.keyspace()
    }

    /// From now on counts what script calls make it do.
    pub fn start_meter(&self) {
        self.engine.start_meter();
    }

    /// Ends the count, and returns the script calls since its start.
    pub fn take_meter(&self) -> Vec<Metered> {
        self.engine.take_meter()
    }

    /// Adds a subscriber, which [`Node::call`] calls before it replies.
    pub fn subscribe(&self, subscriber: Subscriber) {
        locked(&self.subscribers).push(subscriber);
    }

    /// Executes one command. An error of Redis is [`Value::ServerError`]. The second value: whether data has changed.
    pub fn execute(&self, command: &Cmd) -> (RedisResult<Value>, bool) {
        let arguments = Arguments::of(command);
        let reply = self.reply(&arguments);
        let has_changed = self.keyspace().end_write();
        (reply.or_else(|fault| server_error(&fault)), has_changed)
    }

    fn reply(&self, arguments: &Arguments) -> Result<Value, Fault> {
        match arguments.get(0).to_ascii_uppercase().as_slice() {
            b"EVALSHA" => {
                let sha1 = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
                if !locked(&self.loaded).contains(&sha1) {
                    return Err(Fault::from_static("NOSCRIPT No matching script. Please use EVAL."));
                }
                self.engine.run(arguments)
            }
            b"SCRIPT" if arguments.is(1, "LOAD") => {
                let sha1 = self.engine.load(arguments.get(2))?;
                locked(&self.loaded).insert(sha1.clone());
                Ok(Value::BulkString(sha1.into_bytes()))
            }
            b"SCRIPT" if arguments.is(1, "FLUSH") => {
                self.forget_scripts();
                Ok(Value::Okay)
            }
            b"INFO" if arguments.is(1, "REPLICATION") => {
                // Redis draws its replication ids: two in a row have no digits in common.
                let id = self.timeline.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b1);
                let info = format!("role:master\r\nmaster_replid:{id:08x}{:032}\r\nmaster_replid2:{:040}\r\n", 0, 0);
                Ok(Value::BulkString(info.into_bytes()))
            }
            _ => execute(&mut self.keyspace(), arguments),
        }
    }
}

/// At once and without faults.
impl Node for SimulatedRedis {
    fn open(self: Arc<Self>) -> Arc<dyn Node> {
        self
    }

    fn call<'a>(&'a self, command: &'a Cmd) -> NodeReply<'a> {
        let (reply, _) = self.execute(command);
        let published = self.keyspace().take_published();
        for (_, message) in published {
            locked(&self.subscribers).iter().for_each(|subscriber| subscriber(&message));
        }
        Box::pin(std::future::ready(reply))
    }
}

/// The reply of an error, decoded as if it had come from a connection.
fn server_error(fault: &Fault) -> RedisResult<Value> {
    refusal(&fault.text().replace(['\r', '\n'], " "))
}

/// The reply of an error, given its line.
pub(crate) fn refusal(line: &str) -> RedisResult<Value> {
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes())
}
