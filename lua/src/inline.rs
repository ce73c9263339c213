//! Writes the values of constants in place of their names.
//!
//! Redis runs the whole text of a script for each call, so each call makes all of its functions, and each function captures
//! every outer local that it names: Lua 5.1 searches a list for each of them. A constant that stays a name costs that search in
//! each function; as a value it costs nothing (decision 0053).

use std::collections::BTreeMap;

/// The text without its lines `local NAME, … = literal, …`, and with their literals for the names. Names of constants are in
/// capitals. Literals are numbers, strings and `KEYS[n]`. What any other expression computes keeps its name.
pub(crate) fn inline(text: &str) -> String {
    let mut values = BTreeMap::new();
    let lines = text.lines().filter(|line| match constants(line) {
        Some(found) => {
            values.extend(found);
            false
        }
        None => true,
    });
    let rest: Vec<&str> = lines.collect();
    let mut out = String::with_capacity(text.len());
    for line in rest {
        write_line(line, &values, &mut out);
        out.push('\n');
    }
    out
}

/// The names and literals of a line that declares nothing but constants.
fn constants(line: &str) -> Option<Vec<(&str, &str)>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let values = values.split_once(" -- ").map_or(values, |(values, _)| values);
    let names: Vec<&str> = names.split(", ").collect();
    let values: Vec<&str> = values.split(", ").map(str::trim).collect();
    let fits = names.len() == values.len() && names.iter().all(|name| is_constant(name));
    (fits && values.iter().all(|value| is_literal(value))).then(|| names.into_iter().zip(values).collect())
}

fn is_constant(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn is_literal(value: &str) -> bool {
    let is_number = value.parse::<f64>().is_ok() && value.starts_with(|c: char| c.is_ascii_digit());
    let inner = |open: &str, close: &str| value.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let is_key = inner("KEYS[", "]").is_some_and(|number| number.parse::<u32>().is_ok());
    is_number || is_key || inner("'", "'").is_some_and(|text| !text.contains(['\'', '\\']))
}

/// Copies a line word by word. Strings and comments stay, and so does a name after a dot, which is a field.
fn write_line(line: &str, values: &BTreeMap<&str, &str>, out: &mut String) {
    let mut rest = line;
    let mut after_dot = false;
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let (token, next) = rest.split_at(length);
        match values.get(token).filter(|_| !after_dot) {
            Some(value) => {
                out.push_str(value);
                // `0..x` would be a number with two dots.
                if next.starts_with('.') {
                    out.push(' ');
                }
            }
            None => out.push_str(token),
        }
        after_dot = token == "." || token == ":";
        rest = next;
    }
}

/// The bytes of the token that begins with `first`.
fn token(rest: &str, first: char) -> usize {
    let while_true = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    match first {
        '\'' | '"' => string(rest, first),
        '-' if rest.starts_with("--") => rest.len(),
        '.' => while_true(|c| c == '.'),
        c if c.is_alphanumeric() || c == '_' => while_true(|c| c.is_alphanumeric() || c == '_'),
        c => c.len_utf8(),
    }
}

/// The bytes of a string with its quotes.
fn string(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_their_values() {
        let text = "local OK, K = 0, KEYS[3]\nlocal F = '>I4, B' -- of a record\nlocal S = {OK}\nreturn {OK, call('OK', K), F}";
        let inlined = "local S = {0}\nreturn {0, call('OK', KEYS[3]), '>I4, B'}\n";
        // A literal with a comma in it is none that this reads; its constant stays a name.
        assert_eq!(
            inline(text),
            inlined.replace("local S", "local F = '>I4, B' -- of a record\nlocal S").replace(", '>I4, B'}", ", F}")
        );
    }

    #[test]
    fn what_only_reads_like_a_constant_stays() {
        let same = [
            "  local OK = 1", // within a function
            "local ok = 1",
            "local SUM = 1 + 2",
            "local FREE, LOCKED = free()",
            "local T = {}",
            "local N = -1",
            "local E = 'a\\n'",
        ];
        for line in same {
            assert_eq!(inline(line), format!("{line}\n"));
        }
        let text = "local A = 7\nreturn x.A, x:A(), 'A', \"it's A\", A..x, x..A, AA, A_, 'a\\'' .. A -- A";
        assert_eq!(inline(text), "return x.A, x:A(), 'A', \"it's A\", 7 ..x, x..7, AA, A_, 'a\\'' .. 7 -- A\n");
    }
}
