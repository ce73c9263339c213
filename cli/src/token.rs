//! `tallystone token new`: a token, and its entry in the file of principals.

use crate::duration::parse_ms;
use crate::error::CliError;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tallystone_serving::{Rule, Token};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a random token, and the entry for the file of principals
    ///
    /// The file has only the hash of the token. To replace a token without an interruption, add the new one to its
    /// principal, give it to the callers, and then remove the old one.
    New(NewArgs),
}

#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// The name of the principal that has the token
    #[arg(long, value_name = "NAME")]
    name: String,
    /// A right of the principal, such as consume:orders/*; can be repeated
    #[arg(long = "right", value_name = "RULE", required = true)]
    rights: Vec<Rule>,
    /// How long the token is valid, such as 90d [default: until it is removed]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    expires_in: Option<u64>,
    /// Write the token to this new file, which only you can read, instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Made {
    /// Absent if it was written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    id: String,
    /// For the file of principals.
    entry: String,
}

pub(crate) fn run(verb: TokenVerb, output: Output) -> Result<(), CliError> {
    let TokenVerb::New(args) = verb;
    let token = Token::new().map_err(CliError::usage)?;
    let expires_at = args.expires_in.map(|ms| expiry(Duration::from_millis(ms))).transpose()?;
    let entry = entry(&args.name, &args.rights, &token, expires_at.as_deref());
    if let Some(path) = &args.out {
        write(path, &token.text).map_err(|error| CliError::usage(format!("--out {}: {error}", path.display())))?;
    }
    let made = Made { token: args.out.is_none().then_some(token.text), id: token.id, entry };
    output.one(&made, |made| match &made.token {
        Some(token) => format!(
            "The token; it is shown only now:\n\n{token}\n\nIts entry for the file of principals:\n\n{}",
            made.entry
        ),
        // It can be appended to the file of principals as it is.
        None => format!("# The token is in the file of --out.\n{}", made.entry),
    })
}

fn entry(name: &str, rights: &[Rule], token: &Token, expires_at: Option<&str>) -> String {
    // A JSON string is a TOML string, too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let rights: Vec<String> = rights.iter().map(|right| quoted(&right.to_string())).collect();
    let mut entry = format!(
        "[[principal]]\nname = {}\nrights = [{}]\n\n[[principal.tokens]]\nid = {}\nsha256 = {}\n",
        quoted(name),
        rights.join(", "),
        quoted(&token.id),
        quoted(&token.sha256)
    );
    if let Some(at) = expires_at {
        entry += &format!("expires_at = {}\n", quoted(at));
    }
    entry
}

fn expiry(after: Duration) -> Result<String, CliError> {
    let at = SystemTime::now().checked_add(after).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.and_then(|at| at.as_secs().try_into().ok()).and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    let at = at.ok_or_else(|| CliError::usage("--expires-in: the time is later than the year 9999"))?;
    at.format(&Rfc3339).map_err(CliError::usage)
}

fn write(path: &Path, token: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_serving::{Book, Right};

    #[test]
    fn s3_an_expiry_beyond_the_years_of_the_format_is_refused() {
        for after in [Duration::from_secs(9_000 * 366 * 86_400), Duration::MAX] {
            assert!(expiry(after).unwrap_err().to_string().contains("9999"));
        }
    }

    #[test]
    fn s3_the_entry_is_a_file_of_principals() {
        let token = Token::new().unwrap();
        let rights = ["consume:orders/*", "deny:consume:orders/vip"].map(|rule| rule.parse().unwrap());
        let at = expiry(Duration::from_secs(3_600)).unwrap();
        let name = "a \"quoted\" name";
        for expires_at in [None, Some(at.as_str())] {
            let book = Book::parse(&entry(name, &rights, &token, expires_at)).unwrap();
            let summary = book.summary(name).unwrap();
            assert_eq!(summary.tokens, 1);
            let may = |queue| summary.rules.on(Right::Consume, queue).is_granted();
            assert!(may("orders/a") && !may("orders/vip"));
        }
    }
}
