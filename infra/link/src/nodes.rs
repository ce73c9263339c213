//! How the nodes of a store are reached, wherever they are.

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates};

/// How the nodes are reached, but for their addresses.
pub(crate) struct NodeAccess {
    pub(crate) info: ConnectionInfo,
    pub(crate) certificates: Option<TlsCertificates>,
}

impl NodeAccess {
    /// The client of one node. `address`: `None`, that of `info`.
    pub(crate) fn client(&self, address: Option<ConnectionAddr>) -> RedisResult<Client> {
        let info = match address {
            Some(address) => self.info.clone().set_addr(address),
            None => self.info.clone(),
        };
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    pub(crate) fn address(&self, host: String, port: u16) -> ConnectionAddr {
        match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}
