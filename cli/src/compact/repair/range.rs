//! Damaged ranges of ids.

use serde::Serialize;
use std::collections::BTreeSet;

/// The ids of a page that cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) file: String,
    pub(super) page: u32,
}

/// The ranges among what `CT.CHECK` found.
pub(super) fn of_faults(faults: &BTreeSet<String>) -> Vec<Range> {
    let ranges: BTreeSet<Range> = faults.iter().filter_map(|fault| range(fault)).collect();
    ranges.into_iter().collect()
}

/// Reads `DAMAGED page P of FILE is damaged or missing (ids F to L)`.
fn range(fault: &str) -> Option<Range> {
    let rest = fault.strip_prefix("DAMAGED page ")?;
    let (page, rest) = rest.split_once(" of ")?;
    let (file, rest) = rest.split_once(' ')?;
    let (first, last) = rest.rsplit_once("(ids ")?.1.strip_suffix(')')?.split_once(" to ")?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    Some(Range { first, last, file: file.to_owned(), page: page.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_damaged_ranges_are_read_from_faults() {
        let faults = [
            "DAMAGED page 3 of tallystone-00ff.cold is damaged or missing (ids 5 to 18446744073709551615)",
            "id 7 has [1] in its table and reads [2]",
        ];
        let found = of_faults(&faults.map(str::to_owned).into());
        let file = "tallystone-00ff.cold".to_owned();
        assert_eq!(found, [Range { first: 5, last: u64::MAX, file, page: 3 }]);
        // A store of an earlier version says it in other words.
        assert_eq!(of_faults(&[faults[0].replace("is damaged or missing", "fails its checksum")].into()), found);
    }
}
