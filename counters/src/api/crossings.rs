//! ListCrossings (N16).

use super::sealed::{seal, unseal};
use super::status::of_call;
use super::wire::{answer_items, gives_up, namespace};
use crate::crossings::CrossingEntry;
use crate::names::NamespaceName;
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use crate::service::{CounterService, CrossingsAfter, CrossingsFrom, CrossingsPosition};
use tallystone_link::StreamId;
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::Access;
use tonic::{Request, Status};

/// The position of a caller that requires only what follows.
const NOW: &str = "now";

pub(super) async fn list(
    counters: &CounterService,
    request: Request<wire::ListCrossingsRequest>,
) -> Result<wire::ListCrossingsResponse, Status> {
    let access = Access::of(request.extensions());
    let answer_by = tallystone_proto::answer_by(request.metadata());
    let wire::ListCrossingsRequest { namespace: name, after, limit, wait_ms } = request.into_inner();
    let name = namespace(name)?;
    let from = from(&after, &name).map_err(of_call)?;
    let limit = answer_items(limit).map_err(of_call)?;
    let until = gives_up(wait_ms, answer_by).map_err(of_call)?;
    let found = tokio::select! {
        found = counters.crossings(&name, from, limit, until) => found.map_err(of_call)?,
        // The caller has lost its right to read.
        withdrawn = access.withdrawn() => return Err(withdrawn),
    };
    let CrossingsAfter { page, position } = found;
    Ok(wire::ListCrossingsResponse {
        crossings: page.entries.into_iter().flat_map(crossings).collect(),
        position: text(&position, &name),
        complete_to_ms: page.complete_to_ms as i64,
    })
}

fn crossings(entry: CrossingEntry) -> impl Iterator<Item = wire::Crossing> {
    let CrossingEntry { id, counter, count, exact_to_ms, thresholds, .. } = entry;
    thresholds.into_iter().map(move |threshold| {
        let is_up = count >= threshold;
        let direction = if is_up { wire::CrossingDirection::Up } else { wire::CrossingDirection::Down };
        wire::Crossing {
            counter: counter.to_string(),
            threshold,
            direction: direction.into(),
            count,
            exact_to_ms: exact_to_ms as i64,
            committed_at_ms: id.ms as i64,
        }
    })
}

fn of_namespace(name: &NamespaceName) -> String {
    format!("crossings {name}")
}

/// A position, for a later call.
fn text(CrossingsPosition { namespace, read }: &CrossingsPosition, name: &NamespaceName) -> String {
    let ids: String = read.iter().map(|id| format!(".{id}")).collect();
    seal(&format!("{namespace}{ids}"), &of_namespace(name))
}

fn from(after: &str, name: &NamespaceName) -> Result<CrossingsFrom, Refusal> {
    let position = || {
        let parts = unseal(after, &of_namespace(name))?;
        let (namespace, ids) = parts.split_first()?;
        let ids: Vec<StreamId> = ids.iter().map(|id| StreamId::parse(id)).collect::<Option<_>>()?;
        let read = <[StreamId; SHARDS as usize]>::try_from(ids).ok()?;
        Some(CrossingsPosition { namespace: namespace.parse().ok()?, read })
    };
    match after {
        "" => Ok(CrossingsFrom::Oldest),
        NOW => Ok(CrossingsFrom::Now),
        _ => {
            let unknown = || Refusal::invalid("after", format!("is no position of this namespace, nor '{NOW}'"));
            position().map(CrossingsFrom::Position).ok_or_else(unknown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n16_a_position_reads_back_and_no_other_text_does() {
        let name = NamespaceName::parse("ns").expect("a name");
        let read = std::array::from_fn(|shard| StreamId { ms: u64::MAX - shard as u64, number: shard as u64 });
        let position = CrossingsPosition { namespace: u64::MAX, read };
        let of = |after: &str| from(after, &name);
        let one = text(&position, &name);
        assert_eq!(of(&one), Ok(CrossingsFrom::Position(position)));
        assert_eq!((of(""), of("now")), (Ok(CrossingsFrom::Oldest), Ok(CrossingsFrom::Now)));
        assert!(from(&one, &NamespaceName::parse("other").expect("a name")).is_err(), "of another namespace");
        for bad in ["end", "1", &one[1..], &one[..one.len() - 1], &format!("{one}."), &one.replacen('-', ".", 1)] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
