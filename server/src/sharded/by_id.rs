//! The shard of a message that a call names by its id, or by its lease (docs/decisions/0180).

use super::one_queue::OneQueue;
use futures::future::join_all;
use std::collections::BTreeMap;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Applied, MessageId, Refusal, Shard, Store, fencing};

impl<S: Store> OneQueue<'_, S> {
    /// The number of the shard of each of these messages: of a simple queue by its id, of an exclusive one the first shard that has
    /// a message of this id. An id that no message has is of any shard: each of them says so.
    ///
    /// # Errors
    /// Of one id: a shard that may be the first does not answer. The call that names it is not made.
    pub(super) async fn numbers_of(&self, ids: &[&MessageId]) -> Vec<Result<u16, Refusal>> {
        let layout = &self.layout;
        if layout.exclusivity_key().is_none() && layout.old().is_empty() {
            return ids.iter().map(|id| Ok(layout.current().number_of(None, id))).collect();
        }
        // The shards that may have each id, closed ones first, as Enqueue calls them.
        let candidates: Vec<Vec<u16>> = ids.iter().map(|id| self.candidates(id)).collect();
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, numbers) in candidates.iter().enumerate() {
            numbers.iter().for_each(|number| parts.entry(*number).or_default().push(at));
        }
        let store: &S = self.store;
        let held = parts.into_iter().map(|(number, positions)| {
            let ids: Vec<MessageId> = positions.iter().map(|at| ids[*at].clone()).collect();
            async move {
                let ids = &ids;
                let held = self.on_time(number, |shard: Shard| async move { store.holds(&shard, ids).await }).await;
                (number, positions, held)
            }
        });
        let mut of_ids: Vec<Vec<(u16, Result<bool, Refusal>)>> = candidates.iter().map(|_| Vec::new()).collect();
        for (number, positions, held) in join_all(held).await {
            for (place, at) in positions.into_iter().enumerate() {
                let is_there = held.as_ref().map(|held| held[place]).map_err(Refusal::clone);
                of_ids[at].push((number, is_there));
            }
        }
        of_ids.iter().map(|held| first_of(held)).collect()
    }

    /// The numbers of the shards that may have a message of this id, ascending.
    fn candidates(&self, id: &MessageId) -> Vec<u16> {
        match self.layout.exclusivity_key() {
            None => self.layout.generations().map(|generation| generation.number_of(None, id)).collect(),
            Some(_) => self.numbers().collect(),
        }
    }

    /// The number of the shard of each of these leases: its fencing token names it. Without a token as [`numbers_of`](Self::numbers_of).
    /// The second value: whether shards were searched for an id, so that the Dequeue of the same flush is sent before the call.
    ///
    /// # Errors
    /// Of one lease, see there.
    pub(super) async fn numbers_of_leases(&self, leases: &[LeaseRef]) -> (Vec<Result<u16, Refusal>>, bool) {
        let layout = &self.layout;
        let by_token = |lease: &LeaseRef| match layout.exclusivity_key() {
            None if layout.old().is_empty() => Some(layout.current().number_of(None, &lease.id)),
            _ if lease.fencing_token == 0 => None,
            key => {
                let number = u16::try_from(fencing::shard_of(lease.fencing_token)).ok()?;
                let may_have = match key {
                    Some(_) => layout.has(number),
                    // The id counts, too: a token of another message is refused where the message is.
                    None => {
                        let generation = layout.generation_of(number)?;
                        generation.number_of(None, &lease.id) == number
                    }
                };
                may_have.then_some(number)
            }
        };
        let named: Vec<Option<u16>> = leases.iter().map(by_token).collect();
        let without = leases.iter().zip(&named).filter(|(_, number)| number.is_none());
        let ids: Vec<&MessageId> = without.map(|(lease, _)| &lease.id).collect();
        let has_searched = !ids.is_empty();
        let mut found = self.numbers_of(&ids).await.into_iter();
        let numbers = named.into_iter().map(|number| number.map(Ok).or_else(|| found.next()).unwrap_or(Ok(0)));
        (numbers.collect(), has_searched)
    }
}

/// The first shard that has an id, given for each shard that may have it its number and whether it does. One that does not answer
/// may be the first. If none has it, the last one says so.
fn first_of(held: &[(u16, Result<bool, Refusal>)]) -> Result<u16, Refusal> {
    for (number, is_there) in held {
        match is_there {
            Ok(true) => return Ok(*number),
            Ok(false) => {}
            // The search changes nothing, and the call that it is for is not made.
            Err(Refusal::Unavailable { why, .. }) => {
                return Err(Refusal::Unavailable { applied: Applied::No, why: why.clone() });
            }
            Err(refusal) => return Err(refusal.clone()),
        }
    }
    Ok(held.last().map_or(0, |(number, _)| *number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x4_an_id_is_of_the_first_shard_that_has_it_if_all_before_it_answer() {
        let silent = |applied| Err(Refusal::Unavailable { applied, why: "silent".to_owned() });
        let cases = [
            ([Ok(false), silent(Applied::Unknown), Ok(true)], silent(Applied::No).map(|_: bool| 0)),
            ([Ok(true), silent(Applied::Unknown), Ok(false)], Ok(3)),
            ([Ok(false), Ok(true), silent(Applied::No)], Ok(5)),
            ([Ok(false), Ok(false), Ok(false)], Ok(9)),
        ];
        for (held, first) in cases {
            let held: Vec<(u16, Result<bool, Refusal>)> = [3, 5, 9].into_iter().zip(held).collect();
            assert_eq!(first_of(&held), first, "{held:?}");
        }
    }
}
