//! Clients of HTTP.

use reqwest::{Client, ClientBuilder};

/// Without a proxy, and without the system's CAs: to read them takes longer than a call.
pub fn http_builder() -> ClientBuilder {
    Client::builder().no_proxy().tls_built_in_root_certs(false)
}

/// A client for calls without TLS.
pub fn http_client() -> Client {
    http_builder().build().expect("a client")
}
