//! The constants of the scripts, generated from the model's tables so that each is defined once.

use crate::keys;
use std::fmt::Write;
use tallystone_model::limits::DEQUEUE_PAYLOAD_BYTES;
use tallystone_model::{Cause, State};

/// The first element of a script's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Done; results follow. Also the code of one item.
    Ok = 0,
    /// The shard does not exist.
    NoQueue = 1,
    /// The caller's configuration is stale; the current one and the state follow. Nothing was done.
    Stale = 2,
    /// The script did bounded background work, and more is due: call again.
    Again = 3,
    /// The queue has live messages.
    NotEmpty = 4,
    /// Item: no such message.
    NotFound = 5,
    /// Item: the lease is lost.
    LeaseLost = 6,
    /// Item: the call does not apply to the message's state.
    WrongState = 7,
    /// Item: the id belongs to a message with other content.
    IdConflict = 8,
    /// Item: max_depth.
    QueueFull = 9,
    /// Item: the outbox is full.
    OutboxFull = 10,
}

impl Answer {
    /// All answers in the order of their numbers, with their names in Lua.
    pub const ALL: [(Answer, &str); 11] = [
        (Answer::Ok, "OK"),
        (Answer::NoQueue, "NO_QUEUE"),
        (Answer::Stale, "STALE"),
        (Answer::Again, "AGAIN"),
        (Answer::NotEmpty, "NOT_EMPTY"),
        (Answer::NotFound, "NOT_FOUND"),
        (Answer::LeaseLost, "LEASE_LOST"),
        (Answer::WrongState, "WRONG_STATE"),
        (Answer::IdConflict, "ID_CONFLICT"),
        (Answer::QueueFull, "QUEUE_FULL"),
        (Answer::OutboxFull, "OUTBOX_FULL"),
    ];

    /// The answer of a number.
    pub fn from_code(code: i64) -> Option<Answer> {
        Answer::ALL.get(usize::try_from(code).ok()?).map(|(answer, _)| *answer)
    }
}

/// Later than every time in a record: stands for "never".
pub const FAR_MS: u64 = 1 << 47;
/// The layout of the state record, up to the waiting server's id; `lib/shard.lua` names its fields.
pub const STATE_LAYOUT: &str = ">I4I7I6I6I6I6I6I6I6I6I4I6I6I7I7";
/// How long the mark of a waiting server lasts. The server calls Dequeue again well before.
pub const WAIT_MARK_MS: u64 = 120_000;

/// The first lines of every assembled script.
pub fn prelude() -> String {
    let mut text = String::new();
    let mut local = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "local {name} = {value}");
    };
    for (position, name) in keys::NAMES.iter().enumerate() {
        local(&format!("K_{}", name.to_uppercase()), &format!("KEYS[{}]", position + 1));
    }
    local("FIRST_INDEX_KEY", &(keys::NAMES.len() + 1));
    local("GONE", &0);
    for state in State::ALL {
        local(&state.name().to_uppercase(), &(state as u8));
    }
    for cause in Cause::ALL {
        local(&format!("BY_{}", screaming(&format!("{cause:?}"))), &(cause as u8));
    }
    for (answer, name) in Answer::ALL {
        local(name, &(answer as u8));
    }
    local("FAR", &FAR_MS);
    local("STATE", &format!("'{STATE_LAYOUT}'"));
    local("WAIT_MARK_MS", &WAIT_MARK_MS);
    local("DEQUEUE_PAYLOAD_BYTES", &DEQUEUE_PAYLOAD_BYTES);
    local("WAKE_CHANNEL", &format!("'{}'", keys::WAKE_CHANNEL));
    text
}

fn screaming(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prelude_is_the_models_tables() {
        let text = prelude();
        for line in
            ["local K_STATE = KEYS[1]", "local RUNNING = 3", "local BY_LEASE_EXPIRED = 8", "local LEASE_LOST = 6"]
        {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        for (number, (answer, _)) in Answer::ALL.iter().enumerate() {
            assert_eq!(Answer::from_code(number as i64), Some(*answer));
        }
        assert_eq!(Answer::from_code(-1), None);
    }
}
