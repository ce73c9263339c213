//! The keys of one simulated Redis.

use super::fault::Fault;
use super::undo::{Log, Undo};
use super::value::{Bytes, Data, Entry, Sorted, Stream, StreamId};
use crate::commands::float_text;
use redis::Cmd;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Keys with their values, under a clock that the owner sets.
#[derive(Debug, Default)]
pub struct Keyspace {
    keys: BTreeMap<Bytes, Entry>,
    log: Log,
    now_us: u64,
    published: Vec<(Bytes, Bytes)>,
}

impl Keyspace {
    /// An empty one that can undo this number of writes.
    pub fn new(writes_kept: usize) -> Keyspace {
        Keyspace { log: Log::keeping(writes_kept), ..Keyspace::default() }
    }

    /// Sets the clock: Unix microseconds. It may go back.
    pub fn set_time(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// The clock: Unix microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Ends a write: one command or one script call. Returns whether it has changed anything.
    pub fn end_write(&mut self) -> bool {
        self.log.end()
    }

    /// No write so far can be undone any more.
    pub fn forget_writes(&mut self) {
        self.log.forget();
    }

    /// Goes back to the state before the last `count` writes, or as far as the log reaches. Returns how many writes are
    /// lost.
    pub fn lose_writes(&mut self, count: usize) -> usize {
        (0..count).take_while(|_| self.log.undo_last(&mut self.keys)).count()
    }

    /// Takes what was published since the last call: channels and messages.
    pub fn take_published(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.published).iter().map(|(to, text)| (to.to_vec(), text.to_vec())).collect()
    }

    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) {
        self.published.push((channel.into(), message.into()));
    }

    /// Commands that make the same keys in an empty Redis. Keys that expire do not expire there.
    pub fn commands(&self) -> Vec<Cmd> {
        self.keys.iter().flat_map(|(key, entry)| commands_of(key, &entry.data)).collect()
    }

    /// The names of all keys, in order.
    pub(crate) fn names(&mut self) -> Vec<Bytes> {
        let names: Vec<Bytes> = self.keys.keys().cloned().collect();
        names.into_iter().filter(|name| self.get(name).is_some()).collect()
    }

    /// The entry of a key that has not expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        let is_over = self.keys.get(key)?.expires_ms.is_some_and(|at_ms| at_ms <= self.now_ms());
        if is_over {
            self.remove(key);
        }
        self.keys.get(key)
    }

    pub(crate) fn text(&mut self, key: &[u8]) -> Result<Option<&Bytes>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    pub(crate) fn hash(&mut self, key: &[u8]) -> Result<Option<&BTreeMap<Bytes, Bytes>>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    pub(crate) fn sorted(&mut self, key: &[u8]) -> Result<Option<&Sorted>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Sorted(sorted)) => Ok(Some(sorted)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    pub(crate) fn set(&mut self, key: &[u8]) -> Result<Option<&BTreeSet<Bytes>>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Set(set)) => Ok(Some(set)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    pub(crate) fn list(&mut self, key: &[u8]) -> Result<Option<&VecDeque<Bytes>>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::List(list)) => Ok(Some(list)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    pub(crate) fn stream(&mut self, key: &[u8]) -> Result<Option<&Stream>, Fault> {
        match self.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Fault::WRONG_TYPE),
        }
    }

    /// Replaces a key.
    pub(crate) fn put(&mut self, key: &[u8], entry: Entry) {
        let name = match self.keys.get_key_value(key) {
            Some((name, _)) => name.clone(),
            None => Bytes::from(key),
        };
        let before = self.keys.insert(name.clone(), entry);
        self.log.add(Undo::Key(name, before));
    }

    /// Removes a key. Returns whether it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((name, entry)) = self.keys.remove_entry(key) else { return false };
        self.log.add(Undo::Key(name, Some(entry)));
        true
    }

    /// Sets or clears the end of a key that exists.
    pub(crate) fn expire(&mut self, key: &[u8], expires_ms: Option<u64>) {
        if let Some(entry) = self.get(key).cloned() {
            self.put(key, Entry { expires_ms, ..entry });
        }
    }

    /// Sets or removes a field of a hash. Returns its value before.
    pub(crate) fn put_field(&mut self, key: &[u8], field: &[u8], value: Option<&[u8]>) -> Result<Option<Bytes>, Fault> {
        if !self.ready(key, value.is_some(), || Data::Hash(BTreeMap::new())) {
            return Ok(None);
        }
        let Some((name, Entry { data: Data::Hash(hash), .. })) = entry_of(&mut self.keys, key) else {
            return Err(Fault::WRONG_TYPE);
        };
        let before = match (hash.get_mut(field), value) {
            (Some(held), Some(value)) => Some(std::mem::replace(held, value.into())),
            (Some(_), None) => hash.remove(field),
            (None, Some(value)) => hash.insert(field.into(), value.into()),
            (None, None) => return Ok(None),
        };
        if self.log.is_kept() {
            self.log.add(Undo::Field(name, field.into(), before.clone()));
        }
        self.drop_if_empty(key);
        Ok(before)
    }

    /// Sets or removes a member of a sorted set. Returns its score before.
    pub(crate) fn put_score(&mut self, key: &[u8], member: &[u8], score: Option<f64>) -> Result<Option<f64>, Fault> {
        if !self.ready(key, score.is_some(), || Data::Sorted(Sorted::default())) {
            return Ok(None);
        }
        let Some((name, Entry { data: Data::Sorted(sorted), .. })) = entry_of(&mut self.keys, key) else {
            return Err(Fault::WRONG_TYPE);
        };
        if score == sorted.score(member) {
            return Ok(score);
        }
        let member = Bytes::from(member);
        let before = sorted.put(&member, score);
        self.log.add(Undo::Score(name, member, before));
        self.drop_if_empty(key);
        Ok(before)
    }

    /// Adds a member to a set or removes it. Returns whether the set had it.
    pub(crate) fn put_member(&mut self, key: &[u8], member: &[u8], has: bool) -> Result<bool, Fault> {
        if !self.ready(key, has, || Data::Set(BTreeSet::new())) {
            return Ok(false);
        }
        let Some((name, Entry { data: Data::Set(set), .. })) = entry_of(&mut self.keys, key) else {
            return Err(Fault::WRONG_TYPE);
        };
        let had = if has { !set.insert(member.into()) } else { set.remove(member) };
        if had != has {
            self.log.add(Undo::Member(name, member.into(), had));
            self.drop_if_empty(key);
        }
        Ok(had)
    }

    /// Changes a list; `creates`: also one that does not exist.
    pub(crate) fn change_list<T: Default>(
        &mut self,
        key: &[u8],
        creates: bool,
        change: impl FnOnce(&mut VecDeque<Bytes>) -> T,
    ) -> Result<T, Fault> {
        let mut list = match self.list(key)? {
            Some(list) => list.clone(),
            None if creates => VecDeque::new(),
            None => return Ok(T::default()),
        };
        let result = change(&mut list);
        self.put_data(key, Data::List(list));
        Ok(result)
    }

    /// Changes a stream; `creates`: also one that does not exist.
    pub(crate) fn change_stream<T: Default>(
        &mut self,
        key: &[u8],
        creates: bool,
        change: impl FnOnce(&mut Stream) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut stream = match self.stream(key)? {
            Some(stream) => stream.clone(),
            None if creates => Stream::default(),
            None => return Ok(T::default()),
        };
        let result = change(&mut stream)?;
        self.put_data(key, Data::Stream(stream));
        Ok(result)
    }

    /// Replaces the value of a key, which keeps its end.
    fn put_data(&mut self, key: &[u8], data: Data) {
        if data.is_empty() {
            self.remove(key);
            return;
        }
        let expires_ms = self.get(key).and_then(|entry| entry.expires_ms);
        self.put(key, Entry { data, expires_ms });
    }

    /// Makes the key if it does not exist and the change adds to it. `false`: there is nothing to change.
    fn ready(&mut self, key: &[u8], adds: bool, empty: fn() -> Data) -> bool {
        if self.get(key).is_some() {
            return true;
        }
        if adds {
            self.put(key, Entry::new(empty()));
        }
        adds
    }

    fn drop_if_empty(&mut self, key: &[u8]) {
        if self.keys.get(key).is_some_and(|entry| entry.data.is_empty()) {
            self.remove(key);
        }
    }
}

/// Commands with at most this number of elements each.
const ELEMENTS: usize = 500;

fn commands_of(key: &Bytes, data: &Data) -> Vec<Cmd> {
    let chunks = |name: &str, elements: Vec<Vec<Bytes>>| -> Vec<Cmd> {
        let command = |elements: &[Vec<Bytes>]| {
            let mut command = redis::cmd(name);
            command.arg(&key[..]);
            elements.iter().flatten().for_each(|part| {
                command.arg(&part[..]);
            });
            command
        };
        elements.chunks(ELEMENTS).map(command).collect()
    };
    match data {
        Data::Text(text) => chunks("SET", vec![vec![text.clone()]]),
        Data::Hash(hash) => {
            chunks("HSET", hash.iter().map(|(field, value)| vec![field.clone(), value.clone()]).collect())
        }
        Data::Sorted(sorted) => {
            let pair = |(member, score): (&Bytes, f64)| vec![float_text(score).as_bytes().into(), member.clone()];
            chunks("ZADD", sorted.ordered().map(pair).collect())
        }
        Data::Set(set) => chunks("SADD", set.iter().map(|member| vec![member.clone()]).collect()),
        Data::List(list) => chunks("RPUSH", list.iter().map(|item| vec![item.clone()]).collect()),
        Data::Stream(stream) => {
            let entry = |(id, values): &(StreamId, Arc<Vec<Bytes>>)| {
                let mut command = redis::cmd("XADD");
                command.arg(&key[..]).arg(id.text());
                values.iter().for_each(|value| {
                    command.arg(&value[..]);
                });
                command
            };
            stream.entries.iter().map(entry).collect()
        }
    }
}

fn entry_of<'a>(keys: &'a mut BTreeMap<Bytes, Entry>, key: &[u8]) -> Option<(Bytes, &'a mut Entry)> {
    let name = keys.get_key_value(key)?.0.clone();
    Some((name, keys.get_mut(key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_writes_leave_what_was_there_before_them() {
        let mut keyspace = Keyspace::new(8);
        let mut states = Vec::new();
        for write in 0..8_u8 {
            states.push(keyspace.keys.clone());
            keyspace.put_field(b"hash", &[write % 3], Some(&[write])).expect("a hash");
            keyspace
                .put_score(b"sorted", &[write % 2], (write % 4 < 2).then_some(f64::from(write)))
                .expect("a sorted set");
            keyspace.put_member(b"set", b"a", write.is_multiple_of(2)).expect("a set");
            keyspace.change_list(b"list", true, |list| list.push_back([write].into())).expect("a list");
            keyspace.put(b"text", Entry::new(Data::Text([write].into())));
            assert!(keyspace.end_write());
        }
        assert!(!keyspace.end_write(), "nothing has changed");
        for state in states.into_iter().rev() {
            assert_eq!(keyspace.lose_writes(1), 1);
            assert_eq!(keyspace.keys, state);
        }
        assert_eq!(keyspace.lose_writes(1), 0);
    }

    #[test]
    fn a_key_is_gone_at_its_end_and_when_it_is_empty() {
        let mut keyspace = Keyspace::new(0);
        keyspace.put(b"a", Entry { expires_ms: Some(2), ..Entry::new(Data::Text([1].into())) });
        keyspace.set_time(1_999);
        assert!(keyspace.get(b"a").is_some());
        keyspace.set_time(2_000);
        assert!(keyspace.get(b"a").is_none());
        keyspace.put_member(b"s", b"x", true).expect("a set");
        keyspace.put_member(b"s", b"x", false).expect("a set");
        assert!(keyspace.names().is_empty());
    }
}
