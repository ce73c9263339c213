//! rpc TraceMessage (Q20).

use super::token::Pages;
use super::visible::{restrict_messages, restrict_transitions};
use super::{fields, status, uncertain, watermark};
use crate::clock::now_ms;
use crate::store::{HistoryStore, Queues, TraceQuery};
use prost::Message;
use tallystone_proto::history::v1 as pb;
use tallystone_serving::Access;
use tonic::{Request, Status};

const LIMIT: usize = 1_000;
const LIMIT_MAX: usize = 10_000;
/// A page ends at this size, whatever its limit, so that a client with gRPC's default limit of 4 MiB can read it.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: Request<pb::TraceMessageRequest>,
) -> Result<pb::TraceMessageResponse, Status> {
    let access = Access::of(request.extensions());
    let mut request = request.into_inner();
    let page_token = std::mem::take(&mut request.page_token);
    let limit = fields::count("limit", std::mem::take(&mut request.limit), LIMIT, LIMIT_MAX)?;
    let (queue, id) = (fields::queue(&request.queue)?, fields::id(&request.id)?);
    let sequence = Some(request.sequence).filter(|sequence| *sequence > 0);
    let pages = Pages { rpc: "TraceMessage", request };
    let after: Option<(u64, u32)> = pages.position(&page_token, now_ms())?;
    let reached = watermark::reached(store).await?;
    let queues = Queues::One(queue.clone());
    let query = TraceQuery { queue, id, sequence, limit, after };
    let trace = async { store.trace(&query).await.map_err(status::of_store) };
    let (mut trace, losses) = futures::try_join!(trace, uncertain::losses(store, &queues))?;
    losses.mark(&mut trace.message);
    let mut transitions = trace.transitions;
    let found = transitions.len();
    transitions.truncate(fitting(&transitions));
    let more = trace.more || transitions.len() < found;
    let next_page_token = match transitions.last().filter(|_| more) {
        Some(last) => pages.token((last.sequence, last.version), now_ms()),
        None => String::new(),
    };
    let mut gaps = gaps(after, &transitions);
    // Of a change after the watermark the store may have the message and not yet the transition.
    let settled =
        trace.message.as_ref().filter(|message| reached.0.is_some_and(|to| message.changed_at_ms <= to as i64));
    gaps.extend(settled.filter(|_| !more).and_then(|message| gap_at_the_end(after, &transitions, message)));
    restrict_messages(&access, &mut trace.message);
    restrict_transitions(&access, query.queue.as_str(), &mut transitions);
    Ok(pb::TraceMessageResponse {
        gaps,
        transitions,
        message: trace.message,
        next_page_token,
        watermark: Some(reached.watermark()),
    })
}

/// How many transitions fit a page; at least one.
fn fitting(transitions: &[pb::TracedTransition]) -> usize {
    let mut bytes = 0;
    let mut over = |transition: &pb::TracedTransition| {
        bytes += transition.encoded_len() + 8;
        bytes > PAGE_BYTES
    };
    transitions.iter().position(&mut over).map_or(transitions.len(), |fitting| fitting.max(1))
}

/// The versions missing before each transition. The versions of a message begin with 1 and have no gaps. `after` is the
/// last transition of the page before.
fn gaps(after: Option<(u64, u32)>, transitions: &[pb::TracedTransition]) -> Vec<pb::Gap> {
    let mut last = after;
    let mut gaps = Vec::new();
    for &pb::TracedTransition { sequence, version, .. } in transitions {
        let first_version = match last {
            Some((of, last_version)) if of == sequence => last_version.saturating_add(1),
            _ => 1,
        };
        if first_version < version {
            gaps.push(pb::Gap { sequence, first_version, last_version: version - 1 });
        }
        last = Some((sequence, version));
    }
    gaps
}

/// The versions missing between the last transition and the newest version of the message.
fn gap_at_the_end(
    after: Option<(u64, u32)>,
    transitions: &[pb::TracedTransition],
    message: &pb::IndexedMessage,
) -> Option<pb::Gap> {
    let last = transitions.last().map(|transition| (transition.sequence, transition.version)).or(after);
    let last_version = last.filter(|(sequence, _)| *sequence == message.sequence).map_or(0, |(_, version)| version);
    (last_version < message.version).then(|| pb::Gap {
        sequence: message.sequence,
        first_version: last_version + 1,
        last_version: message.version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transitions(versions: &[(u64, u32)]) -> Vec<pb::TracedTransition> {
        let transition =
            |&(sequence, version)| pb::TracedTransition { sequence, version, ..pb::TracedTransition::default() };
        versions.iter().map(transition).collect()
    }

    fn missing(after: Option<(u64, u32)>, versions: &[(u64, u32)]) -> Vec<(u64, u32, u32)> {
        let gaps = gaps(after, &transitions(versions));
        gaps.iter().map(|gap| (gap.sequence, gap.first_version, gap.last_version)).collect()
    }

    #[test]
    fn q20_missing_versions_are_reported_once() {
        assert_eq!(missing(None, &[]), []);
        assert_eq!(missing(None, &[(1, 1), (1, 2), (4, 1)]), []);
        assert_eq!(missing(None, &[(1, 3)]), [(1, 1, 2)], "past the retention");
        assert_eq!(missing(None, &[(1, 1), (1, 3), (1, 7), (4, 2)]), [(1, 2, 2), (1, 4, 6), (4, 1, 1)]);
        assert_eq!(missing(Some((1, 3)), &[(1, 4), (4, 1)]), [], "the page before ended with 3");
        assert_eq!(missing(Some((1, 3)), &[(1, 6), (4, 2)]), [(1, 4, 5), (4, 1, 1)]);
        assert_eq!(missing(Some((1, u32::MAX)), &[(2, 1)]), []);
    }

    #[test]
    fn q20_versions_missing_at_the_end_are_reported_too() {
        let message = pb::IndexedMessage { sequence: 4, version: 3, ..pb::IndexedMessage::default() };
        let missing = |after, versions: &[(u64, u32)]| {
            let gap = gap_at_the_end(after, &transitions(versions), &message)?;
            Some((gap.sequence, gap.first_version, gap.last_version))
        };
        assert_eq!(missing(None, &[(4, 1), (4, 2), (4, 3)]), None);
        assert_eq!(missing(None, &[(4, 1)]), Some((4, 2, 3)));
        assert_eq!(missing(None, &[]), Some((4, 1, 3)), "all of them are past the retention");
        assert_eq!(missing(None, &[(1, 9)]), Some((4, 1, 3)), "the message before it is complete");
        assert_eq!(missing(Some((4, 2)), &[]), Some((4, 3, 3)));
        assert_eq!(missing(Some((4, 2)), &[(4, 3)]), None);
    }

    #[test]
    fn q20_a_page_fits_the_default_limit_of_clients() {
        let long = |count: usize, reason: usize| {
            let transition = pb::TracedTransition { reason: "x".repeat(reason), ..pb::TracedTransition::default() };
            vec![transition; count]
        };
        assert_eq!(fitting(&long(0, 0)), 0);
        assert_eq!(fitting(&long(10_000, 100)), 10_000);
        let some = fitting(&long(10_000, 1_000));
        assert!((2_000..2_100).contains(&some), "{some}");
        assert_eq!(fitting(&long(2, PAGE_BYTES)), 1);
    }
}
