//! The flags that set options of a counter set, and their names in errors.

use crate::duration::parse_ms;
use clap::{Args, ValueEnum};

/// Which table an id belongs to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Order {
    /// Tables by ranges of ids: for ids that rise with time
    Rising,
    /// Tables by a hash of the id: for ids in no order
    Random,
}

/// Options that are fixed when the set is created.
#[derive(Args, Debug)]
pub(super) struct FixedOptions {
    /// How tables divide the ids: by ranges of ids, or by a hash [default: rising]
    #[arg(long, value_enum)]
    order: Option<Order>,
    /// Slots of one table, 16 to 2^26; a record takes one slot [default: 1048576]
    #[arg(long, value_name = "N")]
    table_slots: Option<u64>,
    /// Bytes of an id in a slot, 4 to 8; 0: 5 with --order rising, 8 with --order random [default: 0]
    #[arg(long, value_name = "N")]
    key_bytes: Option<u64>,
}

/// Options that can be changed.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// The percentage of used slots at which the next table begins, 10 to 95 [default of a new set: 90]
    #[arg(long, value_name = "PERCENT")]
    fill_percent: Option<u64>,
    /// The maximum number of groups of 16 slots that a search examines, 1 to 64 (more than 16 count as 16, and more than 8 as 8 if
    /// --table-slots is above 1048576) [default of a new set: 8]
    #[arg(long, value_name = "N")]
    probe_max: Option<u64>,
    /// Tables that are allocated before an id needs them, 0 to 64 [default of a new set: 0]
    #[arg(long, value_name = "N")]
    tables_preallocated: Option<u64>,
    /// The maximum number of tables in memory; beyond it, new ids are refused; 0: no maximum [default of a new set: 0]
    #[arg(long, value_name = "N")]
    tables_max: Option<u64>,
    /// While the counter set takes more bytes of memory than this, such as 8G, the tables with the lowest ids move to files; 0: never
    /// [default of a new set: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_max: Option<u64>,
    /// Bytes of memory for records that were read from files [default of a new set: 16M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    cache_bytes: Option<u64>,
    /// How long a token is remembered, up to a week; 0s: tokens are refused [default of a new set: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    token_window: Option<u64>,
}

impl FixedOptions {
    /// Names and values, as commands have them.
    pub(super) fn list(&self) -> Vec<(&'static str, String)> {
        let order = self.order.map(|order| match order {
            Order::Rising => "RISING".to_owned(),
            Order::Random => "RANDOM".to_owned(),
        });
        let numbers = [("TABLE_SLOTS", self.table_slots), ("KEY_BYTES", self.key_bytes)];
        order.map(|order| ("ORDER", order)).into_iter().chain(given(numbers)).collect()
    }
}

impl Options {
    /// Names and values, as commands have them.
    pub(super) fn list(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("FILL_PERCENT", self.fill_percent),
            ("PROBE_MAX", self.probe_max),
            ("TABLES_PREALLOCATED", self.tables_preallocated),
            ("TABLES_MAX", self.tables_max),
            ("MEMORY_MAX", self.memory_max),
            ("CACHE_BYTES", self.cache_bytes),
            ("TOKEN_WINDOW_MS", self.token_window),
        ];
        given(numbers).collect()
    }
}

fn given<const N: usize>(numbers: [(&'static str, Option<u64>); N]) -> impl Iterator<Item = (&'static str, String)> {
    numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())))
}

/// The names of options in errors, and the flags that set them.
const FLAGS: [(&str, &str); 11] = [
    ("TABLES_PREALLOCATED", "--tables-preallocated"),
    ("TABLES_MAX", "--tables-max"),
    ("TABLE_SLOTS", "--table-slots"),
    ("KEY_BYTES", "--key-bytes"),
    ("FILL_PERCENT", "--fill-percent"),
    ("PROBE_MAX", "--probe-max"),
    ("MEMORY_MAX", "--memory-max"),
    ("CACHE_BYTES", "--cache-bytes"),
    ("TOKEN_WINDOW_MS", "--token-window"),
    ("ORDER RISING", "--order rising"),
    ("ORDER", "--order"),
];

/// A text of the module, with flags instead of options.
pub(super) fn in_flags(text: &str) -> String {
    FLAGS.iter().fold(text.to_owned(), |text, (name, flag)| text.replace(name, flag))
}

/// For clap: a number of bytes such as `4096`, `64K`, `512M`, `8G`, `1T`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err("expected bytes such as 4096, 64K, 512M, 8G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "expected bytes such as 4096, 64K, 512M, 8G".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        let texts = ["0", "4096", "64K", "512MiB", "8g", "1T"].map(parse_bytes);
        assert_eq!(texts, [0, 4_096, 65_536, 512 << 20, 8 << 30, 1 << 40].map(Ok));
        assert!(["", "K", "-1", "1.5G", "1X", "99999999999T"].into_iter().all(|text| parse_bytes(text).is_err()));
    }

    #[test]
    fn w1_errors_name_flags() {
        assert_eq!(in_flags("TABLES_MAX is a number from 0 to 1048576"), "--tables-max is a number from 0 to 1048576");
        let text = "MEMORY_MAX needs ORDER RISING: a hash has no lowest table";
        assert_eq!(in_flags(text), "--memory-max needs --order rising: a hash has no lowest table");
    }
}
