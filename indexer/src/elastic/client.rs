//! One request to the server. It uses plain media types and no client headers of Elastic, because OpenSearch refuses
//! them.

use super::options::ElasticOptions;
use super::reply::{HttpReply, no_response};
use super::retry::retry_while_shards_start;
use crate::store::HistoryError;
use bytes::Bytes;
use elasticsearch::http::headers::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use elasticsearch::http::transport::{SingleNodeConnectionPool, Transport, TransportBuilder};
use elasticsearch::http::{Method, Url};
use futures::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A search without an index finds nothing. One that cannot read a shard fails: a partial result would be wrong.
const SEARCH: &[(&str, &str)] =
    &[("ignore_unavailable", "true"), ("allow_no_indices", "true"), ("allow_partial_search_results", "false")];

/// The connections to the server.
pub(super) struct ElasticClient {
    transport: Transport,
}

/// The address of a server; the error says what is wrong with it, without the address, which may have a password in it.
pub(crate) fn parse_url(url: &str) -> Result<Url, String> {
    match Url::parse(url) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("has a user or a password; set elasticsearch.user and password_file, or elasticsearch.api_key_file"
                .to_owned())
        }
        Ok(url) if matches!(url.scheme(), "http" | "https") && !url.cannot_be_a_base() => Ok(url),
        Ok(_) => Err("it begins with neither http:// nor https://".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl ElasticClient {
    pub(super) fn new(options: &ElasticOptions) -> Result<ElasticClient, HistoryError> {
        let invalid = |why: String| HistoryError::Failed(format!("the address of Elasticsearch: {why}"));
        let url = parse_url(&options.url).map_err(invalid)?;
        let access = options.access.read().map_err(|error| HistoryError::Failed(error.to_string()))?;
        let agent = HeaderValue::from_static(concat!("tallystone/", env!("CARGO_PKG_VERSION")));
        let mut builder = TransportBuilder::new(SingleNodeConnectionPool::new(url))
            .timeout(options.request_timeout)
            .enable_meta_header(false)
            .header(USER_AGENT, agent)
            // The proxy of the environment is for addresses outside.
            .disable_proxy();
        if let Some(credentials) = access.credentials {
            builder = builder.auth(credentials);
        }
        if let Some(validation) = access.validation {
            builder = builder.cert_validation(validation);
        }
        let transport = builder.build().map_err(|error| invalid(error.to_string()))?;
        Ok(ElasticClient { transport })
    }

    /// Sends a request with a JSON body, or without a body.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<HttpReply, HistoryError> {
        self.exchange(method, path, query, HeaderMap::new(), body.map(|body| body.to_string().into())).await
    }

    /// Sends the lines of a bulk request.
    pub(super) async fn send_bulk(&self, query: &[(&str, &str)], lines: Bytes) -> Result<HttpReply, HistoryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        self.exchange(Method::Post, "_bulk", query, headers, Some(lines)).await
    }

    /// Searches the indices and decodes the response as `T`.
    pub(super) async fn search<T: DeserializeOwned>(&self, indices: &str, body: &Value) -> Result<T, HistoryError> {
        let path = format!("{indices}/_search");
        let search = || self.send(Method::Post, &path, SEARCH, Some(body)).map(|reply| reply?.read());
        retry_while_shards_start(search).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpReply, HistoryError> {
        // `None`: the transport's own timeout covers the whole exchange.
        let sent = self.transport.send(method, path, headers, Some(query), body, None).await;
        let response = sent.map_err(|error| no_response(&error))?;
        let status = response.status_code().as_u16();
        let body = response.bytes().await.map_err(|error| no_response(&error))?;
        Ok(HttpReply { status, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    #[test]
    fn a_refused_address_does_not_show_its_password() {
        for bad in ["", "search:9200", "ftp://u:secret@x", "http://u:secret@x", "http://"] {
            let error = ElasticClient::new(&ElasticOptions::new(bad)).err().expect(bad).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    /// The Elasticsearch of the tests takes passwords, but makes no API keys.
    #[tokio::test]
    async fn s6_each_request_has_the_api_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "aWQ6a2V5\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = ElasticOptions::new(format!("http://{}", listener.local_addr().unwrap()));
        options.access.api_key_file = Some(file.path().to_owned());
        let client = ElasticClient::new(&options).unwrap();
        tokio::spawn(async move { client.send(Method::Get, "_search", &[], None).await });
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(socket.read_buf(&mut head).await.unwrap(), 0);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.lines().any(|line| line == "authorization: ApiKey aWQ6a2V5"), "{head}");
    }
}
