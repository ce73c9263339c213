//! Opens the object stores of clouds, with bounds on how long one of their calls may take.

use object_store::path::Path;
use object_store::{Error, ObjectStore};
use url::Url;

/// The store with this address, and the prefix in it. Options that it does not have are ignored.
#[cfg(feature = "clouds")]
pub(crate) fn open(
    url: &Url,
    options: impl Iterator<Item = (String, String)>,
) -> Result<(Box<dyn ObjectStore>, Path), Error> {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;
    use object_store::{ClientOptions, ObjectStoreScheme, RetryConfig};
    use std::time::Duration;

    /// Of a call that the store answers with a failure or not at all. The caller or the queue tries again later.
    const RETRIES_MAX: usize = 4;
    const RETRY_FOR: Duration = Duration::from_secs(20);
    const CONNECT_WITHIN: Duration = Duration::from_secs(3);
    /// With the bytes of an object, up to 128 MiB.
    const ANSWER_WITHIN: Duration = Duration::from_secs(30);

    macro_rules! built {
        ($builder:ty) => {{
            let client = ClientOptions::new().with_connect_timeout(CONNECT_WITHIN).with_timeout(ANSWER_WITHIN);
            let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
            let builder = <$builder>::new().with_client_options(client).with_retry(retry).with_url(url.as_str());
            let builder = options.fold(builder, |builder, (key, value)| match key.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            });
            Box::new(builder.build()?) as Box<dyn ObjectStore>
        }};
    }

    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let store = match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder),
        other => {
            let source = format!("{other:?} is no store of an archive").into();
            return Err(Error::Generic { store: "archive", source });
        }
    };
    Ok((store, Path::parse(path)?))
}

/// This program has none.
#[cfg(not(feature = "clouds"))]
pub(crate) fn open(
    _url: &Url,
    _options: impl Iterator<Item = (String, String)>,
) -> Result<(Box<dyn ObjectStore>, Path), Error> {
    Err(Error::Generic { store: "archive", source: "this program was built without the stores of clouds".into() })
}

#[cfg(all(test, feature = "clouds"))]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn n15_a_bucket_that_fails_is_given_up_after_few_tries() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        let answering = tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = connection.read(&mut [0; 4_096]).await;
                let _ = connection
                    .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .await;
            }
        });
        let options = [
            ("aws_endpoint", format!("http://{address}")),
            ("aws_allow_http", "true".to_owned()),
            ("aws_region", "us-east-1".to_owned()),
            ("aws_access_key_id", "id".to_owned()),
            ("aws_secret_access_key", "key".to_owned()),
            ("aws_profile", "unknown to the store".to_owned()),
        ];
        let url = Url::parse("s3://bucket/counters").unwrap();
        let options = options.into_iter().map(|(key, value)| (key.to_owned(), value));
        let (store, prefix) = open(&url, options).unwrap();
        assert_eq!(prefix.as_ref(), "counters");
        assert!(store.head(&Path::from("object")).await.is_err());
        assert_eq!(requests.load(Ordering::SeqCst), 5, "the call and four retries");
        answering.abort();
    }
}
