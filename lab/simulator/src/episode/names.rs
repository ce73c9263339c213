//! Commands and replies in the words of a trace.

use redis::{Arg, Cmd, RedisResult, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use tallystone_lua::Script;

fn word(command: &Cmd, at: usize) -> &[u8] {
    match command.args_iter().nth(at) {
        Some(Arg::Simple(word)) => word,
        _ => &[],
    }
}

pub(super) fn is_script(command: &Cmd) -> bool {
    word(command, 0) == b"EVALSHA"
}

/// Whether it is about keys of the store.
pub(super) fn has_keys(command: &Cmd) -> bool {
    ![&b"INFO"[..], b"SCRIPT", b"TIME", b"PING"].contains(&word(command, 0))
}

/// The script's name, or the command's with its key.
pub(super) fn shown(command: &Cmd) -> String {
    static NAMES: LazyLock<HashMap<&[u8], &str>> =
        LazyLock::new(|| Script::ALL.iter().map(|script| (script.sha1().as_bytes(), script.name())).collect());
    let text = |at| String::from_utf8_lossy(word(command, at)).into_owned();
    match NAMES.get(word(command, 1)) {
        Some(name) if is_script(command) => format!("{name} of {}", text(3)),
        _ if word(command, 0) == b"SCRIPT" => "SCRIPT LOAD".to_owned(),
        _ => format!("{} {}", text(0), text(1)),
    }
}

/// The start of a reply.
pub(super) fn reply(reply: &RedisResult<Value>) -> String {
    const SHOWN: usize = 120;
    let text = match reply {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    };
    without_queue_id(text.chars().take(SHOWN).collect())
}

/// A server draws the id of a queue with several shards; a mark of a deletion has it. Nothing depends on it but whether two are the same, and a
/// trace repeats.
fn without_queue_id(text: String) -> String {
    const BEFORE: &str = " of ";
    const DIGITS: usize = 16;
    let id = |(at, _): (usize, &str)| at + BEFORE.len()..at + BEFORE.len() + DIGITS;
    let is_id = |id: &std::ops::Range<usize>| {
        text.get(id.clone()).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    match text.match_indices(BEFORE).map(id).find(is_id) {
        Some(id) => format!("{}…{}", &text[..id.start], &text[id.end..]),
        None => text,
    }
}
