//! The wait for replicas (Q16): what is sent behind a write, so that its answer means that they have it.
//!
//! WAIT waits for the last write of the connection that it is sent over. A call that finds its work done (a repeated Enqueue, a Complete of what has
//! ended) writes nothing, and what it relies on may have been written over a connection of another process, whose replicas were
//! silent. So a write of the same connection follows each call: replicas get writes in their order, so one that has this write has
//! all before it (decision 0240).

use redis::{Arg, Cmd, Script, Value};
use std::sync::LazyLock;
use std::time::Duration;

/// How many replicas must hold a write before the caller gets its answer (Q16, WAIT).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaWait {
    /// The number of replicas; 0: do not wait.
    pub replicas_min: u32,
    /// The longest wait, in ms.
    pub wait_ms: u64,
    /// They must have fsynced it (WAITAOF), not just received it (WAIT).
    pub fsync: bool,
}

/// Writes a key that expires. Also where Redis is full: what frees memory waits for replicas, too.
pub(crate) const WRITE: &str = "#!lua flags=allow-oom
redis.call('SET', KEYS[1], '', 'PX', 60000)
";

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(WRITE));

/// The name of that key, in the keyspace of the call.
const NAME: &[u8] = b"wait";

impl ReplicaWait {
    /// The command that waits for what was written over its connection. The primary has fsynced that before it replied.
    pub(crate) fn command(self) -> Cmd {
        let (replicas_min, wait_ms) = (self.replicas_min, self.wait_ms);
        match self.fsync {
            true => redis::cmd("WAITAOF").arg(0).arg(replicas_min).arg(wait_ms).take(),
            false => redis::cmd("WAIT").arg(replicas_min).arg(wait_ms).take(),
        }
    }

    /// How many replicas have it, by the reply to that command.
    pub(crate) fn reached(reply: &Value) -> i64 {
        match reply {
            Value::Int(reached) => *reached,
            // Of WAITAOF: the primary itself, and the replicas.
            Value::Array(counts) => counts.get(1).map_or(0, ReplicaWait::reached),
            _ => 0,
        }
    }

    /// The longest time for which a wait keeps back the replies behind it.
    pub fn longest(self) -> Duration {
        if self.replicas_min == 0 { Duration::ZERO } else { Duration::from_millis(self.wait_ms) }
    }
}

/// The write that follows this command; it has its own key.
pub(crate) fn write_behind(command: &Cmd) -> Cmd {
    let mut write = redis::cmd("EVALSHA");
    write.arg(SCRIPT.get_hash()).arg(1).arg(key_behind(first_key(command)));
    write
}

/// The first key of an EVALSHA or of a command that begins with its key; empty: it has none.
pub(crate) fn first_key(command: &Cmd) -> &[u8] {
    let argument = |at| match command.args_iter().nth(at) {
        Some(Arg::Simple(argument)) => argument,
        _ => b"",
    };
    argument(if argument(0) == b"EVALSHA" { 3 } else { 1 })
}

/// The name of the key in the keyspace of another one. All keys of a keyspace begin alike, up to the first colon. On a Redis Cluster
/// their tag is in this beginning: the key is in the same slot. An ACL that allows the one allows the other.
fn key_behind(key: &[u8]) -> Vec<u8> {
    let keyspace = key.iter().position(|byte| *byte == b':').map_or(key.len(), |colon| colon + 1);
    [&key[..keyspace], NAME].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q16_q17_the_write_behind_a_call_is_in_its_keyspace_and_slot() {
        let key = |key: &str| String::from_utf8(key_behind(key.as_bytes())).expect("text");
        for (of_call, behind) in [
            ("ts:{a:b/0}:state", "ts:wait"),
            ("{5.3}ts:{a:b/0}:state", "{5.3}ts:wait"),
            ("{5.3}tc:{n/7}:cached:x:y", "{5.3}tc:wait"),
            ("ts:queues", "ts:wait"),
        ] {
            assert_eq!(key(of_call), behind);
        }
    }

    #[test]
    fn q16_the_first_key_of_a_script_call_or_a_command_is_found() {
        let words = |words: &[&str]| {
            let mut command = Cmd::new();
            command.arg(words);
            String::from_utf8(first_key(&command).to_vec()).expect("text")
        };
        assert_eq!(words(&["EVALSHA", "sha", "2", "ts:a", "ts:b", "x"]), "ts:a");
        assert_eq!(words(&["EVALSHA", "sha", "0"]), "");
        assert_eq!(words(&["INCRBY", "tc:a", "1"]), "tc:a");
        assert_eq!(words(&["PING"]), "");
        let mut call = redis::cmd("EVALSHA");
        let behind = write_behind(call.arg("sha").arg(1).arg("ts:a:b"));
        let hash = SCRIPT.get_hash();
        let expected = ["EVALSHA", hash, "1", "ts:wait"].map(|word| Some(word.as_bytes()));
        let arguments = behind.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        });
        assert_eq!(arguments.collect::<Vec<_>>(), expected);
    }
}
