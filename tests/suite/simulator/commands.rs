//! Random commands on both: equal replies, equal errors.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use redis::aio::ConnectionLike;
use redis::{Cmd, Value};
use tallystone_tests::{TestConnection, TestRedis};

const COMMANDS: usize = 40_000;
/// Commands between two deletions of all keys.
const COMMANDS_BETWEEN_RESETS: usize = 400;
/// Keys by type; the last one is of each type at times.
const KEYS: [&str; 8] = ["text", "hash", "sorted", "lex", "set", "list", "stream", "any"];
const WORDS: [&str; 9] = ["a", "b", "ab", "b\0", "", "\u{ff}", "10", "-3", "a-longer-word"];
const NUMBERS: [&str; 9] = ["0", "1", "2", "3", "-1", "-2", "7", "007", "x"];
const SCORES: [&str; 9] = ["0", "1", "1", "2.5", "-1", "9007199254740993", "+inf", "-inf", "x"];
const SCORE_ENDS: [&str; 8] = ["-inf", "+inf", "0", "1", "(1", "2.5", "(2.5", "x"];
const LEX_ENDS: [&str; 8] = ["-", "+", "[a", "(a", "[b", "(ab", "[", "x"];
const STREAM_IDS: [&str; 8] = ["1", "2-1", "2-2", "5", "9-64", "12-3", "0", "x"];

/// A seed from the environment, which repeats a failure.
const SEED: &str = "TALLYSTONE_SIMULATOR_COMMANDS_SEED";

#[tokio::test]
async fn x8_random_commands_have_the_same_replies_on_the_simulator_as_on_redis() {
    let seed = crate::property::setting(SEED).unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let mut rng = StdRng::seed_from_u64(seed);
    let (redis, simulated) = (TestRedis::start().await, TestRedis::simulated());
    let (mut redis, mut simulated) = (redis.connection().await, simulated.connection().await);
    let mut last = Vec::new();
    for number in 0..COMMANDS {
        if number.is_multiple_of(COMMANDS_BETWEEN_RESETS) {
            let reset = command("DEL", KEYS.iter().copied());
            answer(&mut redis, &reset).await;
            answer(&mut simulated, &reset).await;
            last.clear();
        }
        let drawn = draw(&mut rng);
        last.push(shown(&drawn));
        let (on_redis, on_simulator) = (answer(&mut redis, &drawn).await, answer(&mut simulated, &drawn).await);
        assert_eq!(
            on_simulator,
            on_redis,
            "the simulator (left) differs from Redis; {SEED}={seed} repeats it\n{}",
            last.join("\n")
        );
    }
}

async fn answer(connection: &mut TestConnection, command: &Cmd) -> String {
    let name = first_word(command);
    match connection.req_packed_command(command).await.and_then(Value::extract_error) {
        // The order of these is each server's own, and so are cursors.
        Ok(Value::Array(mut items)) if name == b"SMEMBERS" || name == b"KEYS" => {
            items.sort_by_key(|item| format!("{item:?}"));
            format!("{items:?}")
        }
        Ok(Value::Array(items)) if name == b"HGETALL" => pairs(&items),
        Ok(Value::Array(items)) if name == b"HSCAN" || name == b"ZSCAN" => match &items[..] {
            [_, Value::Array(items)] => pairs(items),
            _ => format!("{items:?}"),
        },
        Ok(value) => format!("{value:?}"),
        // Redis adds to some texts which command it was.
        Err(error) => format!("error {}", error.code().unwrap_or_default()),
    }
}

fn shown(command: &Cmd) -> String {
    let words = command.args_iter().map(|word| match word {
        redis::Arg::Simple(word) => format!("{:?}", String::from_utf8_lossy(word)),
        _ => String::new(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn first_word(command: &Cmd) -> Vec<u8> {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => name.to_vec(),
        _ => Vec::new(),
    }
}

fn pairs(items: &[Value]) -> String {
    let mut pairs: Vec<String> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
    pairs.sort();
    pairs.join(" ")
}

fn command<'a>(name: &str, words: impl IntoIterator<Item = &'a str>) -> Cmd {
    let mut command = redis::cmd(name);
    for word in words {
        // One word is no UTF-8.
        if word == "\u{ff}" {
            command.arg(&[255_u8][..])
        } else {
            command.arg(word)
        };
    }
    command
}

fn draw(rng: &mut StdRng) -> Cmd {
    let mut pick = |from: &[&'static str]| *from.choose(rng).expect("something to pick from");
    let word = &WORDS;
    let key = |pick: &mut dyn FnMut(&[&'static str]) -> &'static str, of: &'static str| pick(&[of, of, of, of, "any"]);
    let options = [
        "GET",
        "MGET",
        "SET",
        "SETNX",
        "GETRANGE",
        "SETRANGE",
        "INCRBY",
        "DECRBY",
        "DEL",
        "EXISTS",
        "TYPE",
        "KEYS",
        "HGET",
        "HSET",
        "HDEL",
        "HMGET",
        "HEXISTS",
        "HLEN",
        "HSTRLEN",
        "HINCRBY",
        "HSETNX",
        "HGETALL",
        "HSCAN",
        "ZADD",
        "ZADD?",
        "ZREM",
        "ZSCORE",
        "ZMSCORE",
        "ZRANK",
        "ZCARD",
        "ZCOUNT",
        "ZRANGE",
        "ZRANGE?",
        "ZRANGEBYSCORE",
        "ZRANGEBYLEX",
        "LEX",
        "LEX",
        "ZLEXCOUNT",
        "ZREMRANGEBYRANK",
        "ZREMRANGEBYSCORE",
        "ZSCAN",
        "SADD",
        "SREM",
        "SMEMBERS",
        "SISMEMBER",
        "SMISMEMBER",
        "SCARD",
        "RPUSH",
        "RPOP",
        "LPOP",
        "LPOP?",
        "LINDEX",
        "LRANGE",
        "LLEN",
        "XADD",
        "XTRIM",
        "XLEN",
        "XRANGE",
        "XREVRANGE",
        "XREAD",
        "PERSIST",
    ];
    let name = pick(&options);
    let p: &mut dyn FnMut(&[&'static str]) -> &'static str = &mut pick;
    let words: Vec<&str> = match name {
        "GET" | "TYPE" | "EXISTS" | "PERSIST" => vec![p(&KEYS)],
        "DEL" => vec![p(&KEYS)],
        "MGET" => vec![p(&KEYS), p(&KEYS)],
        "KEYS" => vec![p(&["*", "s*", "?et", "[st]e*"])],
        "SET" => vec![key(p, "text"), p(word)],
        "SETNX" => return command("SET", [key(p, "text"), p(word), p(&["NX", "XX"])]),
        "GETRANGE" => vec![key(p, "text"), p(&NUMBERS), p(&NUMBERS)],
        "SETRANGE" => vec![key(p, "text"), p(&["0", "1", "5", "-1", "x"]), p(word)],
        "INCRBY" | "DECRBY" => vec![key(p, "text"), p(&NUMBERS)],
        "HGET" | "HEXISTS" | "HSTRLEN" | "HDEL" => vec![key(p, "hash"), p(word)],
        "HMGET" => vec![key(p, "hash"), p(word), p(word)],
        "HSET" => vec![key(p, "hash"), p(word), p(word), p(word), p(word)],
        "HINCRBY" => vec![key(p, "hash"), p(word), p(&NUMBERS)],
        "HSETNX" => vec![key(p, "hash"), p(word), p(word)],
        "HLEN" | "HGETALL" => vec![key(p, "hash")],
        "HSCAN" => vec![key(p, "hash"), "0", "COUNT", "100"],
        "ZADD" => vec![key(p, "sorted"), p(&SCORES), p(word), p(&SCORES), p(word)],
        "ZADD?" => return command("ZADD", [key(p, "sorted"), p(&["NX", "XX", "GT", "LT", "CH"]), p(&SCORES), p(word)]),
        "LEX" => return command("ZADD", ["lex", "0", p(word), "0", p(word)]),
        "ZREM" | "ZSCORE" | "ZRANK" => vec![p(&["lex", "sorted", "sorted", "any"]), p(word)],
        "ZMSCORE" => vec![key(p, "sorted"), p(word), p(word)],
        "ZCARD" => vec![key(p, "sorted")],
        "ZCOUNT" => vec![key(p, "sorted"), p(&SCORE_ENDS), p(&SCORE_ENDS)],
        "ZRANGE" => vec![key(p, "sorted"), p(&NUMBERS), p(&NUMBERS), "WITHSCORES"],
        "ZRANGE?" => {
            let ends = [p(&SCORE_ENDS), p(&SCORE_ENDS)];
            let limit = [p(&NUMBERS), p(&NUMBERS)];
            return command("ZRANGE", [key(p, "sorted"), ends[0], ends[1], "BYSCORE", "LIMIT", limit[0], limit[1]]);
        }
        "ZRANGEBYSCORE" => {
            vec![key(p, "sorted"), p(&SCORE_ENDS), p(&SCORE_ENDS), "WITHSCORES", "LIMIT", p(&NUMBERS), p(&NUMBERS)]
        }
        "ZRANGEBYLEX" => vec!["lex", p(&LEX_ENDS), p(&LEX_ENDS), "LIMIT", p(&NUMBERS), p(&NUMBERS)],
        "ZLEXCOUNT" => vec!["lex", p(&LEX_ENDS), p(&LEX_ENDS)],
        "ZREMRANGEBYRANK" => vec![p(&["lex", "sorted"]), p(&NUMBERS), p(&NUMBERS)],
        "ZREMRANGEBYSCORE" => vec![key(p, "sorted"), p(&SCORE_ENDS), p(&SCORE_ENDS)],
        "ZSCAN" => vec![key(p, "sorted"), "0", "COUNT", "100"],
        "SADD" | "SREM" | "SMISMEMBER" => vec![key(p, "set"), p(word), p(word)],
        "SISMEMBER" => vec![key(p, "set"), p(word)],
        "SMEMBERS" | "SCARD" => vec![key(p, "set")],
        "RPUSH" => vec![key(p, "list"), p(word), p(word)],
        "RPOP" | "LPOP" | "LLEN" => vec![key(p, "list")],
        "LPOP?" => return command("LPOP", [key(p, "list"), p(&NUMBERS)]),
        "LINDEX" => vec![key(p, "list"), p(&NUMBERS)],
        "LRANGE" => vec![key(p, "list"), p(&NUMBERS), p(&NUMBERS)],
        "XADD" => vec![key(p, "stream"), p(&STREAM_IDS), "t", p(word)],
        "XTRIM" => vec![key(p, "stream"), "MINID", p(&STREAM_IDS)],
        "XLEN" => vec![key(p, "stream")],
        "XRANGE" => vec![key(p, "stream"), p(&["-", "2", "2-2"]), p(&["+", "9", "9-1"]), "COUNT", p(&["1", "2", "9"])],
        "XREVRANGE" => {
            vec![
                key(p, "stream"),
                p(&["+", "9", "9-1", "(9-64", "(5"]),
                p(&["-", "2", "2-2"]),
                "COUNT",
                p(&["1", "2", "9"]),
            ]
        }
        "XREAD" => vec!["COUNT", p(&["1", "2", "9"]), "STREAMS", key(p, "stream"), p(&["0", "2", "2-1"])],
        unknown => panic!("no words for {unknown}"),
    };
    command(name, words)
}
