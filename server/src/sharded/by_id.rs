//! The shard of a message that a call names by its id, or by its lease (docs/decisions/0180).

use super::one_queue::OneQueue;
use futures::future::join_all;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Applied, MessageId, Refusal, Shard, Store, fencing};

impl<S: Store> OneQueue<'_, S> {
    /// The number of the shard of each of these messages: of a simple queue by its id, of an exclusive one the first shard that has
    /// a message of this id. An id that no message has is of any shard: each of them says so.
    ///
    /// # Errors
    /// Of one id: a shard that may be the first does not answer. The call that names it is not made.
    pub(super) async fn numbers_of(&self, ids: &[&MessageId]) -> Vec<Result<u16, Refusal>> {
        if self.layout.exclusivity_key().is_none() {
            return ids.iter().map(|id| Ok(self.layout.current().number_of(None, id))).collect();
        }
        if ids.is_empty() {
            return Vec::new();
        }
        let (store, ids): (&S, Vec<MessageId>) = (self.store, ids.iter().map(|id| (*id).clone()).collect());
        let ids = &ids;
        let held = self
            .numbers()
            .map(|number| self.on_time(number, move |shard: Shard| async move { store.holds(&shard, ids).await }));
        let held = join_all(held).await;
        let held: Vec<(u16, Result<Vec<bool>, Refusal>)> = self.numbers().zip(held).collect();
        (0..ids.len()).map(|at| first_of(&held, at)).collect()
    }

    /// The number of the shard of each of these leases: its fencing token names it. Without a token as [`numbers_of`](Self::numbers_of).
    ///
    /// # Errors
    /// Of one lease, see there.
    pub(super) async fn numbers_of_leases(&self, leases: &[LeaseRef]) -> Vec<Result<u16, Refusal>> {
        let by_token = |lease: &LeaseRef| match self.layout.exclusivity_key() {
            None => Some(self.layout.current().number_of(None, &lease.id)),
            Some(_) if lease.fencing_token == 0 => None,
            Some(_) => {
                let number = fencing::shard_of(lease.fencing_token);
                u16::try_from(number).ok().filter(|number| self.layout.has(*number))
            }
        };
        let named: Vec<Option<u16>> = leases.iter().map(by_token).collect();
        let without = leases.iter().zip(&named).filter(|(_, number)| number.is_none());
        let ids: Vec<&MessageId> = without.map(|(lease, _)| &lease.id).collect();
        let mut found = self.numbers_of(&ids).await.into_iter();
        named.into_iter().map(|number| number.map(Ok).or_else(|| found.next()).unwrap_or(Ok(0))).collect()
    }
}

/// The first shard that has the id at this position, given the numbers of the shards and which ids each has. One that does not
/// answer may be the first.
fn first_of(held: &[(u16, Result<Vec<bool>, Refusal>)], at: usize) -> Result<u16, Refusal> {
    for (number, held) in held {
        match held {
            Ok(held) if held[at] => return Ok(*number),
            Ok(_) => {}
            // The search changes nothing, and the call that it is for is not made.
            Err(Refusal::Unavailable { why, .. }) => {
                return Err(Refusal::Unavailable { applied: Applied::No, why: why.clone() });
            }
            Err(refusal) => return Err(refusal.clone()),
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x4_an_id_is_of_the_first_shard_that_has_it_if_all_before_it_answer() {
        let silent = |applied| Refusal::Unavailable { applied, why: "silent".to_owned() };
        let numbered = |held: Vec<Result<Vec<bool>, Refusal>>| (0..).zip(held).collect::<Vec<(u16, _)>>();
        let held =
            numbered(vec![Ok(vec![false, true, false]), Err(silent(Applied::Unknown)), Ok(vec![true, false, false])]);
        let unknown = Err(silent(Applied::No));
        assert_eq!([0, 1, 2].map(|at| first_of(&held, at)), [unknown.clone(), Ok(0), unknown]);
        let held = numbered(vec![Ok(vec![false, false]), Ok(vec![true, false])]);
        assert_eq!([0, 1].map(|at| first_of(&held, at)), [Ok(1), Ok(0)]);
    }
}
