//! Why is this message not running (Q7)? The store reads the [`Facts`] in one atomic step; the sentences follow from them.

use crate::message::Message;
use crate::names::MessageId;
use crate::state::State;

/// The holder of an exclusivity value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The running message.
    pub id: MessageId,
    /// Its worker.
    pub worker: String,
    /// When its lease ends: Unix ms.
    pub expires_at_ms: u64,
}

/// The facts at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The message.
    pub message: Message,
    /// The queue's dequeue_blocked.
    pub dequeue_blocked: bool,
    /// Exclusive queues, pending message: the holder of its value.
    pub holder: Option<Holder>,
    /// Exclusive queues, pending message of a free value: the value's head, when it is another message.
    pub key_head: Option<MessageId>,
    /// Runnable messages more urgent than this one; 0 when it is not runnable.
    pub ahead: u64,
}

/// The kind of a hindrance; the numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub enum HindranceKind {
    /// It runs now.
    Running = 1,
    /// Its exclusivity value is held by another message.
    KeyLocked = 2,
    /// A more urgent message of its value goes first.
    BehindInKey = 3,
    /// Its invisibility has not ended.
    Invisible = 4,
    /// The queue is paused.
    QueuePaused = 5,
    /// It is runnable, and waits for a worker.
    WaitingForWorker = 6,
    /// It ended.
    Terminal = 7,
    /// It ended because all attempts failed.
    NoAttemptsLeft = 8,
}

/// One thing that keeps the message from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// The kind.
    pub kind: HindranceKind,
    /// One sentence for a person.
    pub text: String,
    /// The message in the way.
    pub blocking_id: Option<MessageId>,
    /// The worker in the way.
    pub worker: String,
    /// When the hindrance ends without action: Unix ms; 0: never.
    pub until_ms: u64,
}

/// The hindrances, the decisive one first. Never empty: for a runnable message it is the wait for a worker.
pub fn hindrances(facts: &Facts) -> Vec<Hindrance> {
    use HindranceKind::*;
    let message = &facts.message;
    let plain = |kind, text: String| Hindrance { kind, text, blocking_id: None, worker: String::new(), until_ms: 0 };
    let mut found = Vec::new();
    match message.state {
        State::Running => found.push(Hindrance {
            worker: message.worker.clone(),
            until_ms: message.due_ms,
            ..plain(Running, format!("It is running now, leased to '{}'.", message.worker))
        }),
        State::Errored => {
            let why = if message.reason.is_empty() { "no reason given" } else { &message.reason };
            let text = match message.attempts < message.max_attempts {
                true => format!("It has failed for good ({why}). Redrive it to run it again."),
                false => format!("All {} attempts have failed ({why}). Redrive it to run it again.", message.attempts),
            };
            found.push(plain(NoAttemptsLeft, text));
        }
        State::Completed => found.push(plain(Terminal, "Nothing is left to do.".to_owned())),
        State::Canceled => {
            let why = if message.reason.is_empty() { "no reason given" } else { &message.reason };
            found.push(plain(Terminal, format!("It was canceled ({why}). Redrive it to run it.")));
        }
        State::Invisible => found
            .push(Hindrance { until_ms: message.due_ms, ..plain(Invisible, "It is invisible to workers.".to_owned()) }),
        State::Pending => {
            if let Some(holder) = &facts.holder {
                found.push(Hindrance {
                    blocking_id: Some(holder.id.clone()),
                    worker: holder.worker.clone(),
                    until_ms: holder.expires_at_ms,
                    ..plain(
                        KeyLocked,
                        format!("Its key is held by message '{}', running on '{}'.", holder.id, holder.worker),
                    )
                });
            } else if let Some(head) = &facts.key_head {
                found.push(Hindrance {
                    blocking_id: Some(head.clone()),
                    ..plain(BehindInKey, format!("Message '{head}' with the same key is more urgent and goes first."))
                });
            } else {
                let text = match facts.ahead {
                    0 => "It is next: it waits for a worker.".to_owned(),
                    n => format!("{n} runnable messages are more urgent."),
                };
                found.push(plain(WaitingForWorker, text));
            }
        }
    }
    if facts.dequeue_blocked && matches!(message.state, State::Pending | State::Invisible) {
        found.insert(0, plain(QueuePaused, "The queue is paused (dequeue blocked).".to_owned()));
    }
    found
}
