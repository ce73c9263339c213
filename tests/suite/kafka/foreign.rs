//! A foreign leader of a consumer group: it gives no partition to any member. That is what a leader does for which Kafka names no
//! partition of a topic, because the topic is created again in that moment.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const FIND_COORDINATOR: (i16, i16) = (10, 0);
const JOIN_GROUP: (i16, i16) = (11, 2);
const HEARTBEAT: (i16, i16) = (12, 0);
const LEAVE_GROUP: (i16, i16) = (13, 0);
const SYNC_GROUP: (i16, i16) = (14, 0);
const REBALANCE_IN_PROGRESS: i16 = 27;
/// A Kafka that has just started creates the topic of the groups when the first coordinator is requested, and loads it.
const NOT_READY: [i16; 3] = [14, 15, 16];
/// The longest session that Kafka allows by default: the leader sends no heartbeats while it waits for a rebalance.
const SESSION_MS: i32 = 1_800_000;
/// A loaded machine may need minutes for a rebalance.
const DEADLINE: Duration = Duration::from_secs(180);
/// How long Kafka waits for the members of the group in a rebalance.
const REBALANCE_MS: i32 = 60_000;
const POLL: Duration = Duration::from_millis(50);
/// Version 0, no topic, and nothing that an assignor adds.
const NOTHING: [u8; 10] = [0, 0, 0, 0, 0, 0, 255, 255, 255, 255];

/// The first member of a group, which leads it.
pub(crate) struct ForeignLeader {
    connection: TcpStream,
    group: String,
    topic: String,
    strategy: &'static str,
    member: String,
    generation: i32,
}

impl ForeignLeader {
    /// Joins a group that has no member yet. `strategy` is the assignor of the members that come.
    pub(crate) fn join(brokers: &str, group: &str, topic: &str, strategy: &'static str) -> ForeignLeader {
        let connection = TcpStream::connect(brokers).expect("a broker");
        connection.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let (group, topic) = (group.to_owned(), topic.to_owned());
        let mut leader = ForeignLeader { connection, group, topic, strategy, member: String::new(), generation: 0 };
        leader.distribute_nothing();
        leader
    }

    /// Distributes nothing until the group has this many other members. Then waits until one of them has the group distributed again,
    /// and leaves.
    pub(crate) fn withhold_from(mut self, others: usize) {
        while self.distribute_nothing() < others {
            self.wait_for_rebalance();
        }
        self.wait_for_rebalance();
        let leave = [text(&self.group), text(&self.member)].concat();
        self.request(LEAVE_GROUP, &leave);
    }

    /// Joins the group, again if it is a member already. Returns how many other members it has then.
    fn distribute_nothing(&mut self) -> usize {
        let metadata = [&[0, 0, 0, 0, 0, 1][..], &text(&self.topic), &[255; 4]].concat();
        let join = [
            text(&self.group),
            [SESSION_MS, REBALANCE_MS].map(i32::to_be_bytes).concat(),
            text(&self.member),
            text("consumer"),
            1_i32.to_be_bytes().to_vec(),
            text(self.strategy),
            bytes(&metadata),
        ];
        let join = join.concat();
        let give_up_at = Instant::now() + DEADLINE;
        let answer = loop {
            let found = self.request(FIND_COORDINATOR, &text(&self.group));
            let joined = (Answer(&found).number() == 0).then(|| self.request(JOIN_GROUP, &join));
            match joined.filter(|joined| !NOT_READY.contains(&Answer(&joined[4..]).number())) {
                Some(joined) => break joined,
                None => std::thread::sleep(POLL),
            }
            assert!(Instant::now() < give_up_at, "the group has no coordinator");
        };
        let mut joined = Answer(&answer[4..]);
        assert_eq!(joined.number(), 0, "the error of a join");
        self.generation = joined.long_number();
        let (_strategy, leader) = (joined.text(), joined.text());
        self.member = joined.text();
        assert_eq!(leader, self.member, "it came first, so it leads");
        let members: Vec<String> = (0..joined.long_number())
            .map(|_| {
                let member = joined.text();
                joined.skip_bytes();
                member
            })
            .collect();
        let assignments = members.iter().flat_map(|member| [text(member), bytes(&NOTHING)].concat());
        let sync = [self.own(), (members.len() as i32).to_be_bytes().to_vec(), assignments.collect()];
        let answer = self.request(SYNC_GROUP, &sync.concat());
        match Answer(&answer).number() {
            0 => members.len() - 1,
            // One more member came meanwhile.
            REBALANCE_IN_PROGRESS => 0,
            error => panic!("the error of a distribution: {error}"),
        }
    }

    fn wait_for_rebalance(&mut self) {
        let give_up_at = Instant::now() + DEADLINE;
        loop {
            let own = self.own();
            let answer = self.request(HEARTBEAT, &own);
            match Answer(&answer).number() {
                0 => {}
                REBALANCE_IN_PROGRESS => return,
                error => panic!("the error of a heartbeat: {error}"),
            }
            assert!(Instant::now() < give_up_at, "no member has the group distributed again");
            std::thread::sleep(POLL);
        }
    }

    /// By what Kafka knows this member.
    fn own(&self) -> Vec<u8> {
        [text(&self.group), self.generation.to_be_bytes().to_vec(), text(&self.member)].concat()
    }

    /// Sends a request, and returns the body of the answer.
    fn request(&mut self, (api, version): (i16, i16), body: &[u8]) -> Vec<u8> {
        let (correlation, no_client) = (0_i32.to_be_bytes(), (-1_i16).to_be_bytes());
        let header = [&api.to_be_bytes()[..], &version.to_be_bytes(), &correlation, &no_client].concat();
        let request = [header, body.to_vec()].concat();
        self.connection.write_all(&bytes(&request)).expect("sent");
        let mut length = [0; 4];
        self.connection.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.connection.read_exact(&mut answer).expect("an answer");
        answer.split_off(correlation.len())
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat()
}

/// What is left of an answer.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn take(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    fn long_number(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn text(&mut self) -> String {
        let length = self.number();
        String::from_utf8(self.take(length as usize).to_vec()).expect("a text")
    }

    fn skip_bytes(&mut self) {
        let length = self.long_number();
        self.take(length as usize);
    }
}
