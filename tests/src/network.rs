//! A network between a client and a service, which tests can cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A port that leads to another one. It ends when it is dropped.
pub struct Network {
    address: SocketAddr,
    cuts: watch::Sender<Cuts>,
    task: JoinHandle<()>,
}

/// How often it broke its connections, and whether it takes new ones.
#[derive(Default)]
struct Cuts {
    count: u64,
    is_shut: bool,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Network {
    /// To the service at this URL.
    ///
    /// # Panics
    /// The URL has no address, or no port is free.
    pub async fn to(url: &str) -> Network {
        let service: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let cuts = watch::Sender::new(Cuts::default());
        let task = tokio::spawn(accept(listener, service, cuts.clone()));
        Network { address, cuts, task }
    }

    /// Where a client reaches the service through it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks every connection. New ones pass.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| cuts.count += 1);
    }

    /// Breaks every connection, and each new one at once.
    pub fn shut(&self) {
        self.cuts.send_modify(|cuts| cuts.is_shut = true);
    }

    /// New connections pass again.
    pub fn open(&self) {
        self.cuts.send_modify(|cuts| cuts.is_shut = false);
    }

    /// Waits until no byte passes through one that is shut.
    pub async fn until_silent(&self) {
        // Each connection has a receiver.
        while self.cuts.receiver_count() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept(listener: TcpListener, service: SocketAddr, cuts: watch::Sender<Cuts>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut cut = cuts.subscribe();
        if cut.borrow_and_update().is_shut {
            continue;
        }
        tokio::spawn(async move {
            let Ok(mut service) = TcpStream::connect(service).await else { return };
            tokio::select! {
                // However it ends, both connections end.
                _ = copy_bidirectional(&mut client, &mut service) => {}
                _ = cut.changed() => {}
            }
        });
    }
}
