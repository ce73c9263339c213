//! The same calls on a real Redis, for their milliseconds: `TALLYSTONE_BOUNDS_REDIS=redis://…` names an empty one, whose data is
//! deleted. The state is copied before the call, and each script call is made again.

use redis::{Cmd, Connection, Value};
use std::sync::OnceLock;
use tallystone_lua::Script;
use tallystone_lua::counter::CounterScript;
use tallystone_simulator::Metered;

const URL: &str = "TALLYSTONE_BOUNDS_REDIS";
/// The number of runs, of which the least counts: other processes disturb some.
const RUNS: usize = 3;

/// One script call, and its milliseconds where a real Redis has executed it.
pub(crate) struct Measured {
    pub(crate) call: Metered,
    pub(crate) ms: Option<f64>,
}

pub(crate) fn url() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var(URL).ok()).as_deref()
}

/// The calls of one script. `state`: what stood before the first call.
pub(crate) fn measured(state: &[Cmd], calls: Vec<Metered>, sha1: &str) -> Vec<Measured> {
    let mut times: Vec<Option<f64>> = vec![None; calls.len()];
    if let Some(url) = url() {
        let mut redis = redis::Client::open(url).and_then(|client| client.get_connection()).expect("a Redis");
        for _ in 0..RUNS {
            for (time, ms) in times.iter_mut().zip(replay(&mut redis, state, &calls)) {
                *time = Some(time.map_or(ms, |least: f64| least.min(ms)));
            }
        }
    }
    let all = calls.into_iter().zip(times).map(|(call, ms)| Measured { call, ms });
    all.filter(|measured| measured.call.sha1 == sha1).collect()
}

fn replay(redis: &mut Connection, state: &[Cmd], calls: &[Metered]) -> Vec<f64> {
    let mut make = |command: &Cmd| command.query::<Value>(redis).expect("a reply");
    make(redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(0).arg("save").arg(""));
    make(&redis::cmd("FLUSHALL"));
    for source in
        Script::ALL.iter().map(|script| script.source()).chain(CounterScript::ALL.iter().map(|script| script.source()))
    {
        make(redis::cmd("SCRIPT").arg("LOAD").arg(source));
    }
    state.iter().for_each(|command| drop(make(command)));
    let mut time = |call: &Metered| {
        let mut command = Cmd::new();
        call.command.iter().for_each(|part| {
            command.arg(&part[..]);
        });
        make(&command);
        let Value::Array(log) = make(redis::cmd("SLOWLOG").arg("GET").arg(1)) else { panic!("a list") };
        let Some(Value::Array(entry)) = log.first() else { panic!("an entry") };
        let Some(Value::Int(took_us)) = entry.get(2) else { panic!("a time") };
        *took_us as f64 / 1_000.0
    };
    calls.iter().map(&mut time).collect()
}
