//! What scripts see of Redis, on both: conversions, the library `struct`, errors.

use redis::aio::ConnectionLike;
use redis::{Cmd, Value};
use tallystone_tests::{TestConnection, TestRedis};

/// Each is the body of a script with one key and the arguments "a" and "2".
const BODIES: &[&str] = &[
    "return 3.99",
    "return -3.99",
    "return 2 ^ 53",
    "return {1, 'two', {3}, nil, 5}",
    "return {1, false, true}",
    "return nil",
    "return {ok = 'fine'}",
    "return {err = 'WRONG this'}",
    "return redis.status_reply('fine')",
    "return redis.error_reply('WRONG this')",
    "return redis.sha1hex('x')",
    "return #KEYS + #ARGV",
    "return ARGV[2] + 1",
    "return type(redis.call('GET', KEYS[1]))",
    "redis.call('SET', KEYS[1], 2 ^ 53) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 1e17) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], -1e-7) return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], 'v').ok",
    "return redis.call('ZADD', KEYS[1], 1.5, 'm', 2 ^ 47, 'n')",
    "redis.call('ZADD', KEYS[1], 0.1, 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
    "redis.call('ZADD', KEYS[1], 1, 'm') return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "return type(redis.call('HMGET', KEYS[1], 'a', 'b')[2])",
    "redis.call('HSET', KEYS[1], 'f', 1) return redis.call('GET', KEYS[1])",
    "redis.call('HSET', KEYS[1], 'f', 1) return redis.pcall('GET', KEYS[1])",
    "redis.call('HSET', KEYS[1], 'f', 1) return pcall(redis.call, 'GET', KEYS[1]) and 1 or 2",
    "return redis.call('NOSUCH')",
    "return redis.call('GET')",
    "return redis.call()",
    "return redis.call('GET', {})",
    "error('broken')",
    "return {#redis.call('TIME')}",
    "return struct.pack('>BI4I6I7', 1, 2, 3, 4)",
    "return struct.pack('<I4i8', 258, -2)",
    "return struct.pack('>I6', 2 ^ 47 + 0.5)",
    "return struct.pack('>i4I2', -1, 65537)",
    "return struct.pack('>Bc0Bc0', 1, 'x', 0, '')",
    "return struct.pack('>c3s', 'abcdef', 'end')",
    "return struct.pack('>c9', 'abc')",
    "return struct.pack('>I4')",
    "return struct.pack('>I4', 'x')",
    "return struct.pack('>I4', '7')",
    "return struct.pack('>I33', 1)",
    "return struct.pack('?', 1)",
    "return {struct.unpack('>I2', '\\1\\2\\3')}",
    "return {struct.unpack('>I2', '\\1\\2\\3', 2)}",
    "return {struct.unpack('>I2', '\\1\\2\\3', 3)}",
    "return {struct.unpack('>I2', '\\1\\2\\3', 0)}",
    "return {struct.unpack('>Bc0', '\\2abc')}",
    "return {struct.unpack('>Bc0', '\\9abc')}",
    "return {struct.unpack('>c0', 'abc')}",
    "return {struct.unpack('>Bc0Bc0B', '\\1a\\0\\7')}",
    "return {struct.unpack('>i2i8', '\\255\\254\\255\\255\\255\\255\\255\\255\\255\\250')}",
    "return {struct.unpack('>s', 'abc')}",
    "return {struct.unpack('>sB', 'abc\\0\\5')}",
    "return string.format('%.0f', ({struct.unpack('>I7', '\\31\\255\\255\\255\\255\\255\\255')})[1])",
    "return struct.size('>I4I7I6c8')",
    "return struct.size('>c0')",
    "return string.format('%.0f-%d %.4f', 2 ^ 53, 7.0, 1 / 16)",
    "return tostring(2 ^ 53) .. ' ' .. tostring(0.1)",
    "return table.concat({1, 2.5, 'x'}, ',')",
    "return math.floor(-1.5)",
    "return #KEYS[1] .. KEYS[1]",
];

#[tokio::test]
async fn x8_scripts_see_the_same_on_the_simulator_as_on_redis() {
    let (redis, simulated) = (TestRedis::start().await, TestRedis::simulated());
    let (mut redis, mut simulated) = (redis.connection().await, simulated.connection().await);
    let mut differing = Vec::new();
    for head in ["#!lua\n", "#!lua flags=no-writes\n", ""] {
        for body in BODIES {
            let script = format!("{head}{body}");
            let (on_redis, on_simulator) = (run(&mut redis, &script).await, run(&mut simulated, &script).await);
            if on_redis != on_simulator {
                differing.push(format!("{script}\n    redis     {on_redis}\n    simulator {on_simulator}"));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    // Neither has it before it is loaded, nor after a flush.
    for connection in [&mut redis, &mut simulated] {
        answer(connection, redis::cmd("SCRIPT").arg("FLUSH")).await;
        let gone = answer(connection, redis::cmd("EVALSHA").arg("0".repeat(40)).arg(0)).await;
        assert_eq!(gone, "error NOSCRIPT");
    }
}

/// The answer of a script on a key that does not exist.
async fn run(connection: &mut TestConnection, script: &str) -> String {
    answer(connection, redis::cmd("DEL").arg("key")).await;
    let sha1 = connection.req_packed_command(redis::cmd("SCRIPT").arg("LOAD").arg(script)).await;
    match sha1.and_then(Value::extract_error) {
        Ok(Value::BulkString(sha1)) => {
            answer(connection, redis::cmd("EVALSHA").arg(sha1).arg(1).arg("key").arg("a").arg("2")).await
        }
        other => format!("not loaded: {other:?}"),
    }
}

async fn answer(connection: &mut TestConnection, command: &Cmd) -> String {
    match connection.req_packed_command(command).await.and_then(Value::extract_error) {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error {}", error.code().unwrap_or_default()),
    }
}
