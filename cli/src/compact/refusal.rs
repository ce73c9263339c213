//! What the errors of Redis and of the module mean to the user.

use super::options::in_flags;
use crate::error::CliError;
use crate::text::visible;
use redis::{ErrorKind, RedisError};
use tallystone_local::MODULE_FILE;

/// The codes of errors that pass by themselves, or that another address resolves.
const UNAVAILABLE: [&str; 7] = ["LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY", "NOREPLICAS"];

/// A failed command, for the user. `key`: what it was about.
pub(super) fn refused(error: &RedisError, url: &str, key: Option<&str>) -> CliError {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    let key = visible(key.unwrap_or_default());
    let refusal = |text: String| CliError::refused(text).reason(code);
    match code {
        "" => unanswered(error, url),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => CliError::usage(format!("the Redis at {url} denies access: {detail}"))
            .hint("the address may have a user and a password: redis://USER:PASSWORD@HOST:PORT"),
        "ERR" if detail.contains("unknown command") => {
            CliError::usage(format!("the Redis at {url} has not loaded the module of the compact store"))
                .hint(format!("start it with --loadmodule /path/to/{MODULE_FILE}; docs/compact.md has more"))
        }
        "ERR" => CliError::usage(in_flags(detail)),
        "NOSET" => refusal(format!("there is no counter set {key} in {url}"))
            .hint(format!("`tallystone compact create {key} FIELD=BITS …` creates it")),
        "BUSYKEY" => refusal(format!("the key {key} exists")).hint("`tallystone compact alter` changes a counter set"),
        "WRONGTYPE" => refusal(format!("the key {key} holds another type of value")),
        "MOVED" => refusal(format!("the key {key} is on another node of the Redis Cluster: {detail}"))
            .hint("--redis-url sets the address of that node"),
        "READONLY" => {
            refusal(format!("the Redis at {url} is a replica")).hint("--redis-url sets the address of its primary")
        }
        "DAMAGED" => refusal(in_flags(&format!("damaged: {detail}")))
            .hint(format!("`tallystone compact repair {key} --from REPLICA_URL` restores it from a replica")),
        "TOOOLD" => {
            refusal(detail.to_owned()).hint("is the clock right? --token-window sets how long tokens are remembered")
        }
        "FULL" => refusal(in_flags(detail)).hint("`tallystone compact alter --tables-max N` allows more tables"),
        "MISCONF" => CliError::unavailable(format!("the Redis at {url} refuses writes: {detail}"))
            .reason(code)
            .hint("if a page of a counter set cannot be read, docs/compact.md says how to give it up"),
        code if UNAVAILABLE.contains(&code) => {
            CliError::unavailable(format!("the Redis at {url} does not carry it out now: {code} {detail}")).reason(code)
        }
        _ => refusal(in_flags(detail)),
    }
}

fn unanswered(error: &RedisError, url: &str) -> CliError {
    match error.kind() {
        ErrorKind::AuthenticationFailed => CliError::usage(format!("the Redis at {url} denies access: {error}"))
            .hint("the address may have a user and a password: redis://USER:PASSWORD@HOST:PORT"),
        ErrorKind::Io => CliError::unavailable(format!("no Redis answers at {url}: {error}"))
            .hint("--redis-url sets another address; `tallystone dev` starts its own Redis"),
        _ => CliError::unavailable(format!("the Redis at {url}: {error}")),
    }
}
