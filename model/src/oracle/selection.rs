//! ChangeMessages (Q25).

use super::record::Record;
use super::shard::QueueShard;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::selection::{Change, ChangeCursor, ChangeRequest, ChangedPage};
use crate::state::State;
use crate::store::{Cancellation, Transition};
use std::collections::BTreeSet;

/// The place of a message in the walk of its state: the part of the walk; for those behind another of their value that
/// value; the priority of pending messages, the time of others; the sequence number.
type WalkPosition = (u8, String, i64, u64);

const BEHIND_IN_VALUE: u8 = 0;
const IN_FRONT: u8 = 1;

impl QueueShard {
    pub(super) fn change_messages(
        &mut self,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> Result<ChangedPage, Refusal> {
        let mut cursor = ChangeCursor::parse(cursor, &request.selection)?;
        if cursor.began_ms == 0 {
            cursor.began_ms = self.now_ms;
        }
        let mut behind = if cursor.at.is_empty() { None } else { Some(decode(&cursor.at)?) };
        let mut page = ChangedPage::default();
        // Those that wait for another message of their value come first: a changed head is replaced by one of them.
        for part in [BEHIND_IN_VALUE, IN_FRONT] {
            let mut walk = self.walk(cursor.state);
            walk.retain(|(place, _)| place.0 == part && behind.as_ref().is_none_or(|behind| place > behind));
            walk.truncate(limit - page.examined as usize);
            for (place, id) in walk {
                self.change_head_of(&id, request, cursor.began_ms, &mut page);
                self.change_selected(&id, request, cursor.began_ms, &mut page);
                page.examined += 1;
                behind = Some(place);
            }
        }
        let at = if page.examined as usize == limit {
            behind.as_ref().map_or_else(String::new, encode)
        } else {
            String::new()
        };
        page.next_cursor = cursor.next(cursor.began_ms, &at, &request.selection);
        Ok(page)
    }

    fn walk(&self, state: State) -> Vec<(WalkPosition, MessageId)> {
        let heads: BTreeSet<&MessageId> = self.heads().into_iter().map(|head| &head.content.id).collect();
        let place = |record: &Record| -> WalkPosition {
            match state {
                State::Pending if heads.contains(&record.content.id) => {
                    (IN_FRONT, String::new(), record.priority, record.sequence)
                }
                State::Pending => {
                    let value = record.value(&self.queue.config).unwrap_or_default().to_owned();
                    (BEHIND_IN_VALUE, value, record.priority, record.sequence)
                }
                State::Invisible | State::Running => (IN_FRONT, String::new(), record.due_ms as i64, record.sequence),
                _ => (IN_FRONT, String::new(), record.state_since_ms as i64, record.sequence),
            }
        };
        let records = self.messages.values().filter(|record| record.state == state);
        let mut walk: Vec<(WalkPosition, MessageId)> =
            records.map(|record| (place(record), record.content.id.clone())).collect();
        walk.sort();
        walk
    }

    /// An update may make a message more urgent than the head of its value: the head is examined before.
    fn change_head_of(&mut self, id: &MessageId, request: &ChangeRequest, began_ms: u64, page: &mut ChangedPage) {
        if request.dry_run || !matches!(request.change, Change::Update(_)) {
            return;
        }
        let config = &self.queue.config;
        let Some(value) = self.messages.get(id).and_then(|record| record.value(config)) else { return };
        let rivals = || self.messages.values().filter(|record| record.value(config) == Some(value));
        if self.messages[id].state != State::Pending || rivals().any(|record| record.state == State::Running) {
            return;
        }
        let head = rivals().filter(|record| record.state == State::Pending).min_by_key(|record| record.urgency());
        if let Some(head) = head.map(|head| head.content.id.clone()) {
            self.change_selected(&head, request, began_ms, page);
        }
    }

    fn change_selected(&mut self, id: &MessageId, request: &ChangeRequest, began_ms: u64, page: &mut ChangedPage) {
        let Some(record) = self.messages.get(id).filter(|record| record.state_since_ms <= began_ms) else { return };
        if !request.selection.matches(&record.content.metadata, &record.reason, record.state_since_ms) {
            return;
        }
        if let Change::Update(patch) = &request.change
            && self.updated(record, patch).is_none()
        {
            return;
        }
        page.matched += 1;
        if request.dry_run {
            return;
        }
        match self.change(id, &request.change) {
            Ok(_) => page.changed += 1,
            Err(refusal) => page.refused.push((id.clone(), refusal)),
        }
    }

    fn change(&mut self, id: &MessageId, change: &Change) -> Result<Transition, Refusal> {
        match change {
            Change::Redrive => self.redrive(id),
            Change::Cancel { reason } => {
                let (id, reason) = (id.clone(), reason.clone());
                self.cancel(&Cancellation { id, fencing_token: 0, force: true, reason })
            }
            Change::Update(patch) => self.update_message(id, patch),
        }
    }
}

fn encode((part, value, number, sequence): &WalkPosition) -> String {
    format!("{part}/{number}/{sequence}/{value}")
}

fn decode(text: &str) -> Result<WalkPosition, Refusal> {
    let place = |text: &str| -> Option<WalkPosition> {
        let mut parts = text.splitn(4, '/');
        let (part, number, sequence) = (parts.next()?, parts.next()?, parts.next()?);
        Some((part.parse().ok()?, parts.next()?.to_owned(), number.parse().ok()?, sequence.parse().ok()?))
    };
    place(text).ok_or_else(|| Refusal::invalid("page_token", "is not a page token of this selection"))
}
