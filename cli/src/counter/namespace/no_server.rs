//! The flag `--counters` in verbs that call no counters server.

use clap::Args;

/// Hides the flag, which all verbs of `tallystone counter` have. It is accepted and not used.
#[derive(Args, Debug)]
pub(crate) struct NoServer {
    #[arg(long = "counters", id = "server_of_counters", value_name = "URL", hide = true)]
    _address: Option<String>,
}
