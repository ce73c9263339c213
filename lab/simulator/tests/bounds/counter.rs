//! The cases of the scripts of counters.
use crate::budget::Case;
use tallystone_lua::counter::CounterScript;
pub(crate) async fn cases(script: CounterScript, size: usize) -> Vec<Case> {
    let _ = (script, size);
    Vec::new()
}
