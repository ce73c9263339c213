//! The flags of an event's idempotency token.

use crate::duration::{format_time, parse_moment};
use clap::Args;
use tallystone_client::IdempotencyToken;

/// The token that identifies an event, so that it counts once.
#[derive(Args, Debug)]
pub(super) struct TokenArgs {
    /// The token, which together with --at identifies the event: it counts only once [default: a new token]
    #[arg(long, requires = "at", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    token: Option<String>,
    /// Time of the event: 2013-01-01T10:15:00.500Z, or 2s for two seconds ago [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    at: Option<u64>,
}

impl TokenArgs {
    pub(super) fn is_given(&self) -> bool {
        self.token.is_some() || self.at.is_some()
    }

    /// The token, or a new one. It is made here and not by the client, so that an error can name it.
    pub(super) fn into_token(self) -> IdempotencyToken {
        match (self.token, self.at) {
            (Some(token), Some(at)) => IdempotencyToken::new(token, at),
            (None, Some(at)) => IdempotencyToken::drawn_for(at),
            (_, None) => IdempotencyToken::now(),
        }
    }
}

/// How to repeat a call that may have counted: with its token.
pub(super) fn repeat_hint(token: &IdempotencyToken) -> String {
    let at = format_time(token.generation_time_ms);
    format!("the same command with --token {} --at {at} counts once (except in a best-effort namespace)", token.token)
}
