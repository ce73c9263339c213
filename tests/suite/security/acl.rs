//! S6: a Redis whose ACL makes it drop its data at its next start is refused.

use crate::crash::machines::Server;
use crate::system::program::{self, SOON};
use redis::Value;
use std::time::Duration;
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::{TestRedis, patient_connection};
use tokio::time::{Instant, sleep};

/// The line that the refusal names, as rules of ACL SETUSER.
const RIGHT: [&str; 4] = ["off", "~*", "&*", "+@all"];

/// A durable Redis with a user for the server that has these rights.
async fn redis_with(rights: &[&str]) -> (TestRedis, redis::aio::MultiplexedConnection, String) {
    let redis = TestRedis::start().await;
    let mut admin = redis.connection().await;
    redis::cmd("CONFIG").arg("SET").arg("appendfsync").arg("always").exec_async(&mut admin).await.expect("durable");
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("tally").arg("on").arg(">pw").arg(rights);
    user.exec_async(&mut admin).await.expect("a user");
    let url = redis.url().replace("redis://", "redis://tally:pw@");
    let tally = redis::Client::open(url.as_str()).expect("an address");
    let admin = patient_connection(&tally).await.expect("a connection");
    (redis, admin, url)
}

async fn set_default(admin: &mut redis::aio::MultiplexedConnection, rules: &[&str]) {
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("default").arg("reset").arg(rules);
    command.query_async::<Value>(admin).await.expect("a rule");
}

#[tokio::test]
async fn s6_a_redis_that_cannot_load_its_data_again_is_refused() {
    let (_redis, mut admin, url) = redis_with(&["~*", "&*", "+@all"]).await;
    let run = || program::run(program::command(&["server", "--listen", "127.0.0.1:1", "--redis-url", &url]), "");
    for rules in [&["off"][..], &["on", ">other", "~ts:*", "+@all"], &["off", "~*", "+@all", "-@write"]] {
        set_default(&mut admin, rules).await;
        let refused = run().await;
        assert_eq!(refused.code, Some(2), "{rules:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("`user default off ~* &* +@all`"), "{rules:?}: {}", refused.stderr);
    }
    let options = RedisOptions { url: url.clone(), ..RedisOptions::default() };
    let volatile = RedisOptions { allow_volatile: true, ..options.clone() };
    RedisStore::connect(volatile).await.map(drop).expect("its operator accepts the loss");
    set_default(&mut admin, &RIGHT).await;
    RedisStore::connect(options).await.map(drop).expect("the line of the refusal");
}

#[tokio::test]
async fn s6_without_the_right_to_read_the_acl_a_server_starts() {
    let (_redis, mut admin, url) = redis_with(&["~*", "&*", "+@all"]).await;
    set_default(&mut admin, &["off"]).await;
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("blind").arg("on").arg(">pw").arg("~*").arg("&*").arg("+@all").arg("-acl");
    command.query_async::<Value>(&mut admin).await.expect("a user");
    let options = RedisOptions { url: url.replace("tally:", "blind:"), ..RedisOptions::default() };
    RedisStore::connect(options).await.map(drop).expect("a warning is no refusal");
}

#[tokio::test]
async fn s6_an_acl_that_changes_while_servers_run_is_noticed() {
    let (_redis, mut admin, url) = redis_with(&["~*", "&*", "+@all"]).await;
    set_default(&mut admin, &RIGHT).await;
    let server = Server::start_with_metrics(&["server", "--redis-url", &url, "--log", "error"]).await;
    for (rules, shown) in [(&RIGHT[..], "0"), (&["off"], "1"), (&RIGHT, "0")] {
        set_default(&mut admin, rules).await;
        let wanted = format!("tallystone_store_unloadable{{mark=\"ts:store\"}} {shown}");
        let give_up_at = Instant::now() + SOON;
        while !server.metrics().await.lines().any(|line| line == wanted) {
            assert!(Instant::now() < give_up_at, "no {wanted} after {rules:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
