//! Functions for the commands of the compact counter store (`CT.…`), whichever Redis client sends them: which key has an id, and what
//! packed arguments and replies consist of. Nothing here opens a connection.
//!
//! Packed commands are the fast ones: 13 bytes for an increment, 8 for an id, 8 for a value.
//!
//! ```
//! use tallystone_client::compact::{Applied, Increments, group, key, pack_ids, unpack_values};
//!
//! // The ids of a Redis Cluster are spread over 1,024 keys: `posts:{0}` to `posts:{1023}`.
//! assert_eq!(key("posts", 1_024, 42), "posts:{516}");
//!
//! // One command for each key. The numbers of fields are their places in the order of creation.
//! const LIKES: u8 = 0;
//! const FIELDS: usize = 2;
//! let ids = [42, 43, 42, 44];
//! for group in group("posts", 1_024, FIELDS, &ids) {
//!     let mut increments = Increments::new();
//!     for id in &group.ids {
//!         increments.push(*id, LIKES, 1).expect("at most 512 of them");
//!     }
//!     // send: CT.PINCRBY group.key increments.as_bytes()
//!     // The reply is an array: how many counted, then the place and the error of each that was refused.
//!     let reply = (2, vec![(1, "OVERFLOW field 'likes' of id 43 …".to_owned())]);
//!     let applied = Applied::from_reply(reply.0, reply.1);
//!     for refused in &applied.refused {
//!         println!("id {}: {}", group.ids.get(refused.place).unwrap_or(&0), refused.code());
//!     }
//! }
//!
//! // send: CT.PGET key pack_ids(…); the reply has each field of each id.
//! let packed = pack_ids(&[42, 43]).expect("at most 512 ids");
//! assert_eq!(packed.len(), 16);
//! let reply = [3_i64, 7, 0, 1].map(i64::to_le_bytes).concat();
//! let values = unpack_values(2, &reply).expect("two fields of each id");
//! assert_eq!(values.rows().collect::<Vec<_>>(), [[3, 7], [0, 1]]);
//! ```

// What lives here: pure functions and what they take and return. `spread.rs` spreads ids over keys, `packed.rs` has packed arguments,
// `reply.rs` replies.
mod packed;
mod reply;
mod spread;

pub use packed::{IDS_MAX, Increments, NewerValues, TooMany, pack_ids};
pub use reply::{Applied, Malformed, RefusedIncrement, VALUES_MAX, Values, ids_per_reply, unpack_values};
pub use spread::{Group, group, key, key_of, partition};
