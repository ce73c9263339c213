//! The arguments of one command.

use crate::keyspace::Fault;
use redis::{Arg, Cmd};

/// A command's name and arguments in one buffer, which the next command uses again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arguments {
    /// Those of a command as the client library has them.
    pub(crate) fn of(command: &Cmd) -> Arguments {
        let mut arguments = Arguments::default();
        for argument in command.args_iter() {
            match argument {
                Arg::Simple(bytes) => arguments.push(bytes),
                // The position of a scan, which no command of the product leaves open.
                _ => arguments.push(b"0"),
            }
        }
        arguments
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds one.
    pub(crate) fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len());
    }

    /// How many, the name included.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// One of them, the name being number 0; empty: there are fewer.
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let Some(&end) = self.ends.get(at) else { return &[] };
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[begin..end]
    }

    /// Those from this number on.
    pub(crate) fn from(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        (at..self.len()).map(|at| self.get(at))
    }

    /// Whether the argument is this word, in upper or lower case.
    pub(crate) fn is(&self, at: usize, word: &str) -> bool {
        self.get(at).eq_ignore_ascii_case(word.as_bytes())
    }

    pub(crate) fn integer(&self, at: usize) -> Result<i64, Fault> {
        integer(self.get(at)).ok_or(Fault::NO_INTEGER)
    }

    pub(crate) fn float(&self, at: usize) -> Result<f64, Fault> {
        float(self.get(at)).ok_or(Fault::NO_FLOAT)
    }
}

/// An integer as Redis reads it: no sign `+`, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = digits.first().is_some_and(u8::is_ascii_digit) && (digits.len() == 1 || digits[0] != b'0');
    if !is_plain || text == b"-0" {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number as Redis reads it, infinities included.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A number as Redis writes it: `%.17g`.
pub(crate) fn float_text(number: f64) -> String {
    const DIGITS: i32 = 17;
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == number.trunc() && number.abs() < 1e15 {
        return format!("{}", number as i64);
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        return without_zeros(&format!("{number:.0$}", (DIGITS - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (-3.0, "-3"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e15, "1000000000000000"),
            (18_014_398_509_481_984.0, "18014398509481984"),
            (1e17, "1e+17"),
            (1.25e-7, "1.2499999999999999e-07"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }

    #[test]
    fn only_plain_integers_are_read() {
        for (text, number) in
            [("7", Some(7)), ("-7", Some(-7)), ("07", None), ("+7", None), ("", None), ("-0", None), ("1 ", None)]
        {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
        }
    }
}
