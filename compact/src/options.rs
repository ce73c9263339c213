//! The options of a counter set: how its tables are made, and its bounds.

use crate::refusal::Refusal;
use crate::table::SEGMENT_BYTES;

/// Which table an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Tables by ranges of ids: for ids that rise with time.
    Rising,
    /// Tables by a hash of the id: for ids in no order.
    Random,
}

/// The options of `CT.CREATE`. All but the first three can be changed by `CT.ALTER key OPTION name value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `ORDER`.
    pub order: Order,
    /// `TABLE_SLOTS`: ids of one table, 16 to 2^26.
    pub table_slots: u64,
    /// `KEY_BYTES`: bytes of a key in a slot, 4 to 8; 0: 5 for rising ids, which reach 2^40 beyond the first id of a table, and 8 for
    /// ids in no order.
    pub key_bytes: u64,
    /// `FILL_PERCENT`: the share of used slots at which the next table begins.
    pub fill_percent: u64,
    /// `PROBE_MAX`: how many groups of 16 slots a search examines before the extend dictionary. More than 16 count as 16, and more than 8 as
    /// 8 in tables of more than 2^20 slots.
    pub probe_max: u64,
    /// `TABLES_PREALLOCATED`: tables whose memory is taken before an id needs it.
    pub tables_preallocated: u64,
    /// `TABLES_MAX`: tables in memory at most; 0: no bound.
    pub tables_max: u64,
    /// `MEMORY_MAX`: bytes of memory from which the table with the lowest ids moves to a file; 0: never.
    pub memory_max: u64,
    /// `CACHE_BYTES`: memory for records of cold tables that were read.
    pub cache_bytes: u64,
    /// `TOKEN_WINDOW_MS`: how long a token is remembered; 0: tokens are refused.
    pub token_window_ms: u64,
    /// Bytes of a segment of a table's memory at most. `CT.CREATE` has no such option: tests make small tables of many segments.
    pub segment_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            order: Order::Rising,
            table_slots: 1 << 20,
            key_bytes: 0,
            fill_percent: 90,
            probe_max: 8,
            tables_preallocated: 0,
            tables_max: 0,
            memory_max: 0,
            cache_bytes: 16 << 20,
            token_window_ms: 600_000,
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

/// Groups that a search examines at most.
pub(crate) const PROBES_MAX: u64 = 16;
/// The same in a table with more slots than [`SMALL_SLOTS`]: there, each group is in another page of memory, so each costs a TLB miss.
const PROBES_MAX_LARGE: u64 = 8;
const SMALL_SLOTS: u64 = 1 << 20;

/// Name, least and greatest value of each number among the options.
const NUMBERS: [(&str, u64, u64); 9] = [
    ("TABLE_SLOTS", 16, 1 << 26),
    ("KEY_BYTES", 0, 8),
    ("FILL_PERCENT", 10, 95),
    ("PROBE_MAX", 1, 64),
    ("TABLES_PREALLOCATED", 0, 64),
    ("TABLES_MAX", 0, 1 << 20),
    ("MEMORY_MAX", 0, 1 << 50),
    ("CACHE_BYTES", 0, 1 << 40),
    ("TOKEN_WINDOW_MS", 0, 7 * 24 * 3_600_000),
];

impl Options {
    /// Sets one option by its name (in any case). `creating`: whether the set has no tables yet.
    pub fn set(&mut self, name: &[u8], value: &[u8], creating: bool) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        if !creating && ["ORDER", "TABLE_SLOTS", "KEY_BYTES"].contains(&name.as_str()) {
            return Err(Refusal::invalid(format!("{name} cannot be changed")));
        }
        if name == "ORDER" {
            self.order = match value.to_ascii_uppercase().as_slice() {
                b"RISING" => Order::Rising,
                b"RANDOM" => Order::Random,
                _ => return Err(Refusal::invalid("ORDER is RISING or RANDOM")),
            };
            return Ok(());
        }
        let &(_, least, most) = NUMBERS
            .iter()
            .find(|(known, _, _)| *known == name)
            .ok_or_else(|| Refusal::invalid(format!("there is no option '{name}'")))?;
        let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        let number = number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| Refusal::invalid(format!("{name} is a number from {least} to {most}")))?;
        *self.number_mut(&name) = number;
        Ok(())
    }

    /// Checks what no single option shows.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.order == Order::Random && self.memory_max > 0 {
            return Err(Refusal::invalid("MEMORY_MAX needs ORDER RISING: a hash has no lowest table"));
        }
        if self.order == Order::Random && self.tables_preallocated > 0 {
            return Err(Refusal::invalid("TABLES_PREALLOCATED needs ORDER RISING: a hash has no next table"));
        }
        if (1..4).contains(&self.key_bytes) {
            return Err(Refusal::invalid("KEY_BYTES is 0 or a number from 4 to 8"));
        }
        Ok(())
    }

    /// Groups that a search examines at most. `PROBE_MAX` may be greater, because sets, logs and clients of earlier versions use such
    /// values. Without this bound, a thousand searches of a full table would take milliseconds.
    pub(crate) fn probes_max(&self) -> u64 {
        if self.table_slots > SMALL_SLOTS { PROBES_MAX_LARGE } else { PROBES_MAX }
    }

    /// Names and values, in the order of the documentation.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let mut copy = self.clone();
        NUMBERS.iter().map(|(name, _, _)| (*name, *copy.number_mut(name))).collect()
    }

    fn number_mut(&mut self, name: &str) -> &mut u64 {
        match name {
            "TABLE_SLOTS" => &mut self.table_slots,
            "KEY_BYTES" => &mut self.key_bytes,
            "FILL_PERCENT" => &mut self.fill_percent,
            "PROBE_MAX" => &mut self.probe_max,
            "TABLES_PREALLOCATED" => &mut self.tables_preallocated,
            "TABLES_MAX" => &mut self.tables_max,
            "MEMORY_MAX" => &mut self.memory_max,
            "CACHE_BYTES" => &mut self.cache_bytes,
            _ => &mut self.token_window_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w2_options_have_bounds_and_names() {
        let mut options = Options::default();
        options.set(b"table_slots", b"32", true).unwrap();
        options.set(b"ORDER", b"random", true).unwrap();
        assert_eq!((options.table_slots, options.order), (32, Order::Random));
        for (name, least, most) in NUMBERS {
            options.set(name.as_bytes(), least.to_string().as_bytes(), true).unwrap();
            assert!(options.set(name.as_bytes(), (most + 1).to_string().as_bytes(), true).is_err());
            assert_eq!(options.list().iter().find(|(known, _)| *known == name), Some(&(name, least)));
        }
        assert!(options.set(b"TABLE_SLOTS", b"64", false).is_err() && options.set(b"ORDER", b"RISING", false).is_err());
        assert!(options.set(b"NONE", b"1", true).is_err() && options.set(b"ORDER", b"UP", true).is_err());
        let most = |table_slots| Options { table_slots, ..Options::default() }.probes_max();
        assert_eq!([16, 1 << 20, (1 << 20) + 1, 1 << 26].map(most), [16, 16, 8, 8]);
        let of = |options: Options| options.check().is_err();
        let random = || Options { order: Order::Random, ..Options::default() };
        assert!(of(Options { memory_max: 1, ..random() }) && of(Options { tables_preallocated: 1, ..random() }));
        assert!(!of(Options { memory_max: 1, tables_preallocated: 1, ..Options::default() }) && !of(random()));
    }
}
