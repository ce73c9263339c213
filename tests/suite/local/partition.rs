//! A network between a client and the service that can be cut.

use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A port that leads to another one. It ends when it is dropped.
pub(super) struct Network {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Network {
    /// To the service at this URL.
    pub(super) async fn to(url: &str) -> Network {
        let target: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let is_cut = watch::Sender::new(false);
        let task = tokio::spawn(accept(listener, target, is_cut.clone()));
        Network { address, is_cut, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all connections, and every new one at once; or lets them be.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, is_cut: watch::Sender<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut cut = is_cut.subscribe();
        if *cut.borrow_and_update() {
            continue;
        }
        tokio::spawn(async move {
            let Ok(mut service) = TcpStream::connect(target).await else { return };
            tokio::select! {
                // However it ends, both connections end.
                _ = copy_bidirectional(&mut client, &mut service) => {}
                _ = cut.changed() => {}
            }
        });
    }
}
