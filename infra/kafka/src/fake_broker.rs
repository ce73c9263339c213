//! For tests: a broker that answers two kinds of requests, and can forget that it is one, as a Kafka does that has just
//! started and is not registered yet.

use crate::options::KafkaOptions;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const API_METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const UNSUPPORTED_VERSION: i16 = 35;
const LEADER_NOT_AVAILABLE: i16 = 5;

/// One broker with one topic of one partition.
#[derive(Clone)]
pub(crate) struct FakeBroker {
    address: SocketAddr,
    is_registered: Arc<AtomicBool>,
    described: Arc<AtomicU64>,
}

impl FakeBroker {
    /// Serves until the process ends.
    pub(crate) fn start() -> FakeBroker {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let broker = FakeBroker { address, is_registered: Arc::new(AtomicBool::new(true)), described: Arc::default() };
        let serving = broker.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(connection.unwrap()));
            }
        });
        broker
    }

    pub(crate) fn options(&self) -> KafkaOptions {
        KafkaOptions { brokers: self.address.to_string(), partitions: 1, ..KafkaOptions::default() }
    }

    /// Whether it names itself as a broker.
    pub(crate) fn set_registered(&self, is_registered: bool) {
        self.is_registered.store(is_registered, Ordering::SeqCst);
        self.described.store(0, Ordering::SeqCst);
    }

    /// How often it has described the cluster since then.
    pub(crate) fn described(&self) -> u64 {
        self.described.load(Ordering::SeqCst)
    }

    /// Answers until the client leaves.
    fn serve(&self, mut connection: TcpStream) -> Option<()> {
        loop {
            let mut length = [0; 4];
            connection.read_exact(&mut length).ok()?;
            let mut request = vec![0; u32::from_be_bytes(length) as usize];
            connection.read_exact(&mut request).ok()?;
            let number = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
            let mut answer = request[4..8].to_vec();
            match (number(0), number(2)) {
                (API_VERSIONS, version) => {
                    let error = if version > 0 { UNSUPPORTED_VERSION } else { 0 };
                    answer.extend(error.to_be_bytes());
                    answer.extend(2_i32.to_be_bytes());
                    for (api, newest) in [(API_VERSIONS, 0_i16), (API_METADATA, 1)] {
                        answer.extend([api, 0, newest].iter().flat_map(|number| number.to_be_bytes()));
                    }
                }
                (API_METADATA, 1) => self.describe(&mut answer),
                other => panic!("the client sends {other:?}"),
            }
            self.send(&mut connection, &answer).ok()?;
        }
    }

    fn send(&self, connection: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
        connection.write_all(&(answer.len() as u32).to_be_bytes())?;
        connection.write_all(answer)
    }

    /// The body of a Metadata response, version 1.
    fn describe(&self, answer: &mut Vec<u8>) {
        fn text(answer: &mut Vec<u8>, text: &str) {
            answer.extend((text.len() as i16).to_be_bytes());
            answer.extend(text.as_bytes());
        }
        let is_registered = self.is_registered.load(Ordering::SeqCst);
        self.described.fetch_add(1, Ordering::SeqCst);
        let (node, error) = if is_registered { (1_i32, 0) } else { (-1, LEADER_NOT_AVAILABLE) };
        answer.extend(i32::from(is_registered).to_be_bytes());
        if is_registered {
            answer.extend(node.to_be_bytes());
            text(answer, &self.address.ip().to_string());
            answer.extend(i32::from(self.address.port()).to_be_bytes());
            // No rack.
            answer.extend((-1_i16).to_be_bytes());
        }
        // The controller, then the one topic: its error, name, whether it is internal, its partitions.
        answer.extend(node.to_be_bytes());
        answer.extend(1_i32.to_be_bytes());
        answer.extend(0_i16.to_be_bytes());
        text(answer, &KafkaOptions::default().topic);
        answer.push(0);
        // One partition: its error, number, leader, and the replicas and those in sync.
        answer.extend(1_i32.to_be_bytes());
        answer.extend(error.to_be_bytes());
        answer.extend(0_i32.to_be_bytes());
        answer.extend(node.to_be_bytes());
        for _ in 0..2 {
            answer.extend(1_i32.to_be_bytes());
            answer.extend(node.to_be_bytes());
        }
    }
}
