//! S1: all streams of requests that a port has take bounded memory.

use super::bounds::{FILES, GROWTH_KIB_MAX, OTHER, connection_from, unfinished};
use super::victim::{Victim, works};
use prost::Message as _;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tallystone_serving::Limits;

const THIS: &str = "127.0.0.1";
/// The largest message of a stream that is not charged for what the server keeps of it.
const UNCHARGED_BYTES: usize = 2 * 1024;

/// The first request of a Work stream, as it is on the wire, with this length.
fn first(bytes: usize) -> Vec<u8> {
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let mut request = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    // A field that no version knows. Its head has five bytes.
    let rest = vec![0_u8; bytes - request.len() - 5];
    prost::encoding::bytes::encode(1_000, &rest, &mut request);
    [&[0][..], &(request.len() as u32).to_be_bytes(), &request].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_all_streams_that_a_port_may_have_take_less_than_100_mb() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let all = usize::try_from(Limits::default().streams_max).expect("a small number");
    let first = first(UNCHARGED_BYTES);
    let mut kept = Vec::new();
    for (address, until) in [(THIS, all / 2), (OTHER, all)] {
        let calls = connection_from(&victim, address).await;
        kept.extend(unfinished(&victim, &calls, all / 2, "Work", &first).await);
        victim.until("tallystone_request_streams", until as f64).await;
        let grown = victim.peak_memory_kib().saturating_sub(before);
        println!("{until} streams: {grown} KiB, {} bytes each", grown * 1024 / until as u64);
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {until} streams");
    }
    works(&innocent, "meanwhile").await;
    drop(kept);
    victim.until("tallystone_request_streams", 0.0).await;
}
