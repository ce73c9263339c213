//! `DEBUG DIGEST`: over the schema, the options, and all records with their ids, in whatever order they lie. Tokens are not part of
//! it: they are forgotten by the clock, at moments that differ between a primary and its replicas.

use crate::raw::{self, api};
use crate::{datatype, guard};
use std::ffi::c_void;
use tallystone_compact::{CounterSet, Folded};

use crate::files::FileTable;

pub(super) unsafe extern "C" fn digest(digest: *mut raw::Digest, value: *mut c_void) {
    guard::or((), || {
        // SAFETY: the engine's value, which it holds for this call.
        let value = unsafe { datatype::from_raw(value) };
        let mut held = value.shared.lock_anyway();
        let (set, files) = held.parts();
        let mut description = set.schema_text();
        for (name, value) in set.options().list() {
            description.push_str(&format!(" {name} {value}"));
        }
        let [first, second] = sum_of_records(set, files);
        // SAFETY: the engine's digest, valid for this call; it copies the bytes.
        unsafe {
            (api().digest_add_string_buffer)(digest, description.as_ptr(), description.len());
            (api().digest_add_long_long)(digest, first.cast_signed());
            (api().digest_add_long_long)(digest, second.cast_signed());
            (api().digest_end_sequence)(digest);
        }
    });
}

/// The sum of two hashes of each record. Records of zeros, which equal missing ones, add nothing. A range that cannot be read adds
/// itself: the digest differs from that of a sound copy.
fn sum_of_records(set: &CounterSet, files: &FileTable) -> [u64; 2] {
    let numbers: Vec<u8> = set.schema().live().map(|(number, _)| number).collect();
    let mut sum = [0_u64; 2];
    let mut add = |words: &mut dyn Iterator<Item = u64>| {
        let mut state = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
        for word in words {
            state = [mix(state[0] ^ word), mix(state[1].rotate_left(29) ^ word)];
        }
        sum = [sum[0].wrapping_add(state[0]), sum[1].wrapping_add(state[1])];
    };
    set.for_each(&mut |page| files.read(page), |folded| match folded {
        Folded::Record(id, record) => {
            let values = numbers.iter().map(|number| record.get(*number).cast_unsigned());
            if values.clone().any(|value| value != 0) {
                add(&mut std::iter::once(id).chain(values));
            }
        }
        Folded::Damaged(damage) => add(&mut [u64::MAX, damage.first, damage.last, 1].into_iter()),
        Folded::Held(id, _) => add(&mut [u64::MAX, id, 2].into_iter()),
    });
    sum
}

/// Spreads each bit over all bits.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
