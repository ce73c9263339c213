//! What is in the keys of a queue: how many entries of each structure that is not empty, then messages by state.

use tallystone_model::{QueueName, State, Store};
use tallystone_server::store::RedisStore;
use tallystone_tests::{TestConnection, TestQueue};

/// One line: `body 2 head 1 ready 1 … | pending 1 running 1`.
pub(super) async fn shown(queue: &TestQueue<RedisStore>, redis: &mut TestConnection) -> String {
    let tag = tag(queue.name());
    let mut found: Vec<String> = redis::cmd("KEYS").arg(format!("{tag}*")).query_async(redis).await.expect("keys");
    found.sort_by(|a, b| place(&a[tag.len()..]).cmp(&place(&b[tag.len()..])));
    let mut words = Vec::new();
    for key in found {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(redis).await.expect("a type");
        let count = match kind.as_str() {
            "hash" => "HLEN",
            "list" => "LLEN",
            "zset" => "ZCARD",
            "set" => "SCARD",
            "stream" => "XLEN",
            _ => continue,
        };
        let count: u64 = redis::cmd(count).arg(&key).query_async(redis).await.expect("a count");
        words.push(format!("{} {count}", &key[tag.len()..]));
    }
    match queue.store.depth(&queue.shard, None).await {
        Err(refusal) => words.push(format!("| {}", refusal.reason())),
        Ok(depth) => {
            words.push("|".to_owned());
            words.extend(
                State::ALL
                    .map(|state| (state, depth.of(state)))
                    .iter()
                    .filter(|(_, count)| *count > 0)
                    .map(|(state, count)| format!("{state} {count}")),
            );
        }
    }
    words.join(" ")
}

/// What every key of the queue begins with.
pub(super) fn tag(queue: &QueueName) -> String {
    format!("ts:{{{queue}/0}}:")
}

/// The order of a message's life.
fn place(name: &str) -> (usize, &str) {
    const ORDER: [&str; 11] = [
        "body",
        "head",
        "ready",
        "backlog",
        "keys",
        "invisible",
        "running",
        "done",
        "errored",
        "requests",
        "request_due",
    ];
    (ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len()), name)
}
