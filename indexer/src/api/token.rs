//! Page tokens: where the next page begins, for which query, and when the token was issued. The caller keeps the token,
//! so any server can continue. Each token carries a fingerprint of its content, which detects changes.

use super::status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Status;
use uuid::Uuid;

/// How long a token is valid.
const AGE_MS_MAX: u64 = 3_600_000;
/// Longer tokens are refused unread; no valid one is nearly as long.
const BYTES_MAX: usize = 4_096;
/// The namespace of the fingerprints. A change of the content of tokens needs a new namespace.
const NAMESPACE: Uuid = Uuid::from_u128(0x9d0c_6b0e_50a4_4f7e_8f6b_2c0a_6a1f_7301);

#[derive(Serialize, Deserialize)]
struct Token<P> {
    #[serde(rename = "p")]
    position: P,
    #[serde(rename = "t")]
    issued_at_ms: u64,
    #[serde(rename = "f")]
    fingerprint: Uuid,
}

/// The pages of one query: the request without its page token and page size, which may differ from page to page.
pub(super) struct Pages<'a, R> {
    pub(super) rpc: &'a str,
    pub(super) request: R,
}

impl<R: Message> Pages<'_, R> {
    /// A token for the page that begins after this position.
    pub(super) fn token(&self, position: impl Serialize, now_ms: u64) -> String {
        let fingerprint = self.fingerprint(&position, now_ms);
        let token = Token { position, issued_at_ms: now_ms, fingerprint };
        BASE64.encode(serde_json::to_vec(&token).expect("positions are numbers and text"))
    }

    /// The position after which the page of this token begins; `None`: it is the first page.
    pub(super) fn position<P: Serialize + DeserializeOwned>(
        &self,
        token: &str,
        now_ms: u64,
    ) -> Result<Option<P>, Status> {
        if token.is_empty() {
            return Ok(None);
        }
        let read = || -> Option<Token<P>> {
            let bytes = BASE64.decode(Some(token).filter(|token| token.len() <= BYTES_MAX)?).ok()?;
            serde_json::from_slice(&bytes).ok()
        };
        let token = read().ok_or_else(status::token_invalid)?;
        if token.fingerprint != self.fingerprint(&token.position, token.issued_at_ms) {
            return Err(status::token_invalid());
        }
        if now_ms.saturating_sub(token.issued_at_ms) > AGE_MS_MAX {
            return Err(status::token_expired());
        }
        Ok(Some(token.position))
    }

    fn fingerprint(&self, position: &impl Serialize, issued_at_ms: u64) -> Uuid {
        let position = serde_json::to_vec(position).expect("positions are numbers and text");
        // The length and the end mark separate the parts.
        let mut text = issued_at_ms.to_be_bytes().to_vec();
        text.extend_from_slice(&position.len().to_be_bytes());
        text.extend_from_slice(&position);
        text.extend_from_slice(self.rpc.as_bytes());
        text.push(0);
        self.request.encode(&mut text).expect("a vector grows");
        Uuid::new_v5(&NAMESPACE, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_proto::history::v1::SearchMessagesRequest;
    use tonic_types::StatusExt;

    fn pages(worker: &str) -> Pages<'static, SearchMessagesRequest> {
        let request = SearchMessagesRequest { worker: worker.to_owned(), ..SearchMessagesRequest::default() };
        Pages { rpc: "SearchMessages", request }
    }

    fn reason(status: Status) -> String {
        status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
    }

    const NOW_MS: u64 = 1_795_000_000_000;

    #[test]
    fn q20_a_token_is_valid_for_its_query_and_for_an_hour() {
        let token = pages("w").token((7_u64, "q"), NOW_MS);
        let position = |pages: Pages<'_, _>, now_ms| pages.position::<(u64, String)>(&token, now_ms);
        assert_eq!(position(pages("w"), NOW_MS).unwrap(), Some((7, "q".to_owned())));
        assert_eq!(position(pages("w"), NOW_MS + AGE_MS_MAX).unwrap(), Some((7, "q".to_owned())));
        // Another server's clock may be behind.
        assert!(position(pages("w"), NOW_MS - 5_000).is_ok());
        assert_eq!(reason(position(pages("w"), NOW_MS + AGE_MS_MAX + 1).unwrap_err()), "PAGE_TOKEN_EXPIRED");
        assert_eq!(reason(position(pages("x"), NOW_MS).unwrap_err()), "PAGE_TOKEN_INVALID");
        let other = Pages { rpc: "TraceMessage", ..pages("w") };
        assert_eq!(reason(position(other, NOW_MS).unwrap_err()), "PAGE_TOKEN_INVALID");
        assert_eq!(pages("w").position::<(u64, String)>("", NOW_MS).unwrap(), None);
    }

    #[test]
    fn q20_a_changed_token_is_refused() {
        let token = pages("w").token((7_u64, 3_u32), NOW_MS);
        let bytes = BASE64.decode(&token).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut forged = bytes.clone();
                forged[at] ^= 1 << bit;
                let read = pages("w").position::<(u64, u32)>(&BASE64.encode(&forged), NOW_MS);
                // The hex digits of the fingerprint have no case.
                let same = forged.eq_ignore_ascii_case(&bytes);
                assert!(
                    same || read.is_err_and(|status| reason(status) == "PAGE_TOKEN_INVALID"),
                    "byte {at} bit {bit}"
                );
            }
        }
        for bad in ["x", "!!!", "e30", &"A".repeat(BYTES_MAX + 4)] {
            assert_eq!(
                reason(pages("w").position::<(u64, u32)>(bad, NOW_MS).unwrap_err()),
                "PAGE_TOKEN_INVALID",
                "{bad:.9}"
            );
        }
    }
}
