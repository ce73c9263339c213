//! Which indices have the documents of an event, a queue, or all queues.

use super::cluster::Cluster;
use super::filter::{Filter, begins_with};
use super::group::IndexGroup;
use super::hours::Places;
use super::names::{IndexNames, Kind};
use crate::groups::longest_prefix;
use crate::store::{HistoryError, Queues};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_model::Recorded;

/// The indices of one event's documents.
pub(super) struct EventIndices<'a> {
    names: &'a IndexNames,
    /// Of its transition.
    pub(super) transitions: Arc<str>,
    /// Of its message.
    pub(super) messages: Arc<str>,
}

impl EventIndices<'_> {
    /// Of its message's payload.
    pub(super) fn payloads(&self) -> String {
        self.names.payloads_of(&self.messages)
    }
}

impl Cluster {
    /// The group of a queue: the one with the longest prefix.
    pub(super) fn group_of(&self, queue: &str) -> &IndexGroup {
        longest_prefix(&self.groups, |group| &group.queue_prefix, queue)
    }

    /// The indices of these times. Chooses those that have none yet.
    pub(super) async fn places(
        &self,
        group: &IndexGroup,
        times: impl Iterator<Item = (Kind, u64)>,
    ) -> Result<Places, HistoryError> {
        group.hours.places(&self.client, &group.names, &group.rollover, times).await
    }

    /// The place of each event, in their order.
    pub(super) async fn places_of(&self, events: &[&Recorded]) -> Result<Vec<EventIndices<'_>>, HistoryError> {
        let mut places = BTreeMap::new();
        let groups: Vec<&IndexGroup> =
            events.iter().map(|recorded| self.group_of(recorded.shard.queue.as_str())).collect();
        for group in &self.groups {
            let own: Vec<usize> = (0..events.len()).filter(|number| std::ptr::eq(groups[*number], group)).collect();
            let times = own.iter().flat_map(|number| {
                let event = &events[*number].event;
                [(Kind::Transitions, event.at_ms), (Kind::Messages, event.enqueued_at_ms)]
            });
            let found = self.places(group, times).await?;
            for number in own {
                let event = &events[number].event;
                let transitions = found.of(Kind::Transitions, event.at_ms)?;
                let messages = found.of(Kind::Messages, event.enqueued_at_ms)?;
                places.insert(number, EventIndices { names: &group.names, transitions, messages });
            }
        }
        Ok(places.into_values().collect())
    }

    /// The indices of messages of all groups, as one pattern.
    pub(super) fn all_messages(&self) -> String {
        let patterns: Vec<&str> = self.groups.iter().map(|group| group.names.current.as_str()).collect();
        patterns.join(",")
    }

    /// The indices that have messages of these queues, and the filter for a search of them.
    pub(super) fn messages_of(&self, queues: &Queues, filter: Filter) -> (String, Filter) {
        match queues {
            Queues::One(queue) => (self.group_of(queue.as_str()).names.current.clone(), filter),
            Queues::WithPrefix(_) | Queues::NotInternal(_) => (self.all_messages(), self.in_their_group(filter)),
        }
    }

    /// Everything that searches read, as one pattern.
    pub(super) fn searched(&self) -> String {
        let transitions: Vec<&str> = self.groups.iter().map(|group| group.names.historic.as_str()).collect();
        format!("{},{},{}", self.all_messages(), transitions.join(","), self.shared().losses)
    }

    /// Leaves out messages that are not in the indices of their queue's group: the groups were others when they were
    /// written.
    fn in_their_group(&self, mut filter: Filter) -> Filter {
        for group in self.groups.iter().filter(|group| !group.queue_prefix.is_empty()) {
            let of_prefix = |group: &IndexGroup| begins_with(&group.queue_prefix);
            let is_nested = |other: &&IndexGroup| {
                other.queue_prefix.len() > group.queue_prefix.len()
                    && other.queue_prefix.starts_with(&group.queue_prefix)
            };
            let own_indices = json!({ "wildcard": { "_index": { "value": format!("{}*", group.names.undated) } } });
            let mut allowed: Vec<Value> = self.groups.iter().filter(is_nested).map(of_prefix).collect();
            allowed.push(own_indices.clone());
            filter = filter.unless(json!({ "bool": { "filter": [of_prefix(group)], "must_not": allowed } }));
            filter = filter.unless(json!({ "bool": { "filter": [own_indices], "must_not": [of_prefix(group)] } }));
        }
        filter
    }
}
