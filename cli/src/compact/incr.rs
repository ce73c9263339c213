//! `tallystone compact incr KEY ID FIELD=DELTA…`

use super::session::CompactSession;
use super::set::{Row, Values};
use crate::duration::{format_time, parse_moment};
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use redis::cmd;

#[derive(Args, Debug)]
pub(crate) struct IncrArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// The id
    id: u64,
    /// The fields, each with the number to add to it, such as likes=1 or views=-3
    #[arg(required = true, value_name = "FIELD=DELTA", value_parser = parse_delta)]
    deltas: Vec<(String, i64)>,
    /// A token; with its time it identifies the increment, so that a repeated command counts once
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), requires = "at")]
    token: Option<String>,
    /// The time of the token, the same in each repetition, such as 2013-01-01T10:15:00.500Z
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "token")]
    at: Option<u64>,
}

pub(super) async fn run(args: IncrArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let IncrArgs { key, id, deltas, token, at } = args;
    let mut command = cmd("CT.INCRBY");
    command.arg(&key).arg(id);
    for (field, delta) in &deltas {
        command.arg(field).arg(delta);
    }
    let token = token.zip(at);
    if let Some((token, time_ms)) = &token {
        command.arg("TOKEN").arg(token).arg("TIME").arg(*time_ms);
    }
    let values: Vec<i64> = match session.attempt(&command).await {
        Ok(values) => values,
        Err(error) => {
            let explained = session.explained(&key, &error);
            // No code: no answer.
            return Err(match (token, error.code()) {
                (Some((token, time_ms)), None) => {
                    let at = format_time(time_ms);
                    explained.hint(format!("the same command with --token {token} --at {at} counts once"))
                }
                (None, None) => explained.hint("it may have counted; with --token it can be repeated safely"),
                _ => explained,
            });
        }
    };
    let fields: Vec<String> = deltas.into_iter().map(|(field, _)| field).collect();
    let row = Row { id, values: Values { fields: &fields, values: &values } };
    session.output.one(&row, |_| {
        let pairs = fields.iter().zip(&values).map(|(field, value)| format!("{}={value}", visible(field)));
        format!("{id}  {}", pairs.collect::<Vec<_>>().join(" "))
    })
}

fn parse_delta(text: &str) -> Result<(String, i64), String> {
    let expected = || "expected FIELD=DELTA, such as likes=1 or views=-3".to_owned();
    let (field, delta) = text.split_once('=').ok_or_else(expected)?;
    Ok((field.to_owned(), delta.parse().map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_deltas_are_signed() {
        assert_eq!(parse_delta("a=-9223372036854775808"), Ok(("a".to_owned(), i64::MIN)));
        assert!(["a", "a=", "a=1.5", "a=9223372036854775808"].into_iter().all(|text| parse_delta(text).is_err()));
    }
}
