//! The constants of the scripts, generated from the model's tables so that each is defined once.

use crate::answer::answers;
use crate::keys;
use std::fmt::Write;
use tallystone_model::limits::{
    AGE_LEASES_MAX, AGE_PRIORITIES_MAX, ATTEMPTS_KEPT, CLOCK_SKEW_MAX_MS, DEQUEUE_PAYLOAD_BYTES, NUMBERS_LEFT_OUT,
};
use tallystone_model::{Cause, State};

answers! {
    /// The first element of a script's reply.
    Answer {
        /// Done; results follow. Also the code of one item.
        Ok = "OK",
        /// The shard does not exist.
        NoQueue = "NO_QUEUE",
        /// The caller's configuration is stale; the current one and the state follow. Nothing was done.
        Stale = "STALE",
        /// The script did bounded background work, and more is due: call again.
        Again = "AGAIN",
        /// A later try of the same Dequeue came first. Nothing was done.
        Overtaken = "OVERTAKEN",
        /// The queue has live messages.
        NotEmpty = "NOT_EMPTY",
        /// Item: no such message.
        NotFound = "NOT_FOUND",
        /// Item: the lease is lost.
        LeaseLost = "LEASE_LOST",
        /// Item: the call does not apply to the message's state.
        WrongState = "WRONG_STATE",
        /// Item: the id belongs to a message with other content.
        IdConflict = "ID_CONFLICT",
        /// Item: max_depth.
        QueueFull = "QUEUE_FULL",
        /// Item: the outbox is full.
        OutboxFull = "OUTBOX_FULL",
        /// Item: a closed shard does not have the message, which is for a later shard.
        Moved = "MOVED",
    }
}

/// Later than every time in a record: stands for "never".
pub const FAR_MS: u64 = 1 << 47;
/// The layout of the state record, up to the waiting server's id; `lib/shard.lua` names its fields.
pub const STATE_LAYOUT: &str = ">I4I7I6I6I6I6I6I6I6I6I4I6I6I7I7";
/// How long the mark of a waiting server lasts. The server calls Dequeue again well before. The mark of a server that has
/// died costs one publication, so it may last long.
pub const WAIT_MARK_MS: u64 = 86_400_000;

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
        local(name, &(*answer as u8));
    }
    local("FAR", &FAR_MS);
    local("STATE", &format!("'{STATE_LAYOUT}'"));
    local("WAIT_MARK_MS", &WAIT_MARK_MS);
    local("DEQUEUE_PAYLOAD_BYTES", &DEQUEUE_PAYLOAD_BYTES);
    local("ATTEMPTS_KEPT", &ATTEMPTS_KEPT);
    local("AGE_PRIORITIES_MAX", &AGE_PRIORITIES_MAX);
    local("AGE_LEASES_MAX", &AGE_LEASES_MAX);
    local("NUMBERS_LEFT_OUT", &NUMBERS_LEFT_OUT);
    local("CLOCK_SKEW_MAX_MS", &CLOCK_SKEW_MAX_MS);
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
            ["local K_STATE = KEYS[1]", "local RUNNING = 3", "local BY_LEASE_EXPIRED = 8", "local LEASE_LOST = 7"]
        {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        for (number, (answer, _)) in Answer::ALL.iter().enumerate() {
            assert_eq!(Answer::from_code(number as i64), Some(*answer));
        }
        assert_eq!(Answer::from_code(-1), None);
    }
}
